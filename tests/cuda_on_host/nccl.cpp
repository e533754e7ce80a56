// The functions of NCCL that the CUDA module calls, for ranks that are threads of one process. A
// communicator's operations run in the order of the calls, each once it is first in its stream and
// all members have come to the same operation; that all call it alike is checked. Sums go around a
// ring that begins elsewhere for every piece, rounded to the type on the way, as NCCL's do.
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/fp16.h"
#include "machine.h"
#include "planted.h"

using namespace cuda_on_host;

namespace {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast };

/// What one member calls. Counts are of elements of `type`, as NCCL counts them.
struct Call {
  Kind kind;
  std::size_t count;
  ncclDataType_t type;
  int root;
  ncclRedOp_t sum;
  const std::byte* from;
  std::byte* to;

  bool fits(const Call& other) const {
    return kind == other.kind && count == other.count && type == other.type && root == other.root &&
           sum == other.sum;
  }
};

/// The members' calls of one operation.
struct Meeting {
  std::vector<std::unique_ptr<Call>> calls;
  std::size_t arrived = 0;
  bool done = false;
};

/// A message that waits for its counterpart.
struct Message {
  std::byte* data;
  std::size_t bytes;
  std::shared_ptr<bool> done;
};

/// The communicators of one id.
struct Clique {
  std::vector<ncclComm_t> members;
  std::size_t joined = 0;
  std::vector<Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<Message>> sends, receives;  // by sender and receiver
  ncclResult_t error = ncclSuccess;
  std::string message;

  void fail(const std::string& what) {
    error = ncclInvalidUsage;
    message = what;
  }
};

/// Work of a communicator: true once it is done.
using Step = std::function<bool()>;
/// Begins such work; a graph does so at each launch.
using Begin = std::function<Step()>;

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  Begin begin;
};

thread_local int group_depth = 0;
thread_local std::vector<Pending> group;
thread_local std::string last_failure;

ncclResult_t refuse(const std::string& why) {
  last_failure = why;
  return ncclInvalidUsage;
}

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static std::map<std::string, std::shared_ptr<Clique>> all;
  return all;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8: return 1;
    case ncclBfloat16:
    case ncclFloat16: return 2;
    case ncclFloat32: return 4;
    default: return 8;
  }
}

float read(const std::byte* from, std::size_t index, ncclDataType_t type) {
  const std::byte* at = from + index * size_of(type);
  if (type == ncclFloat32) return *reinterpret_cast<const float*>(at);
  const auto bits = *reinterpret_cast<const std::uint16_t*>(at);
  return type == ncclBfloat16 ? trainctl::to_float(trainctl::bf16{bits})
                              : trainctl::to_float(trainctl::fp16{bits});
}

float rounded(float value, ncclDataType_t type) {
  if (type == ncclBfloat16) return trainctl::to_float(trainctl::to_bf16(value));
  if (type == ncclFloat16) return trainctl::to_float(trainctl::to_fp16(value));
  return value;
}

void write(std::byte* to, std::size_t index, ncclDataType_t type, float value) {
  std::byte* at = to + index * size_of(type);
  if (type == ncclFloat32) {
    *reinterpret_cast<float*>(at) = value;
  } else {
    *reinterpret_cast<std::uint16_t*>(at) =
        type == ncclBfloat16 ? trainctl::to_bf16(value).bits : trainctl::to_fp16(value).bits;
  }
}

/// The sum over the members of element `index`.
float sum_of(const Meeting& meeting, std::size_t index, ncclDataType_t type) {
  const std::size_t size = meeting.calls.size();
  float sum = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t member = (index / 64 + 1 + i) % size;
    sum = rounded(sum + read(meeting.calls[member]->from, index, type), type);
  }
  if (planted("mean")) sum /= static_cast<float>(size);
  return sum;
}

void gather(const Meeting& meeting, std::size_t bytes) {
  std::vector<std::byte> all;
  for (const auto& call : meeting.calls) all.insert(all.end(), call->from, call->from + bytes);
  for (const auto& call : meeting.calls) std::memcpy(call->to, all.data(), all.size());
}

void perform(const Meeting& meeting) {
  const Call& first = *meeting.calls.front();
  const std::size_t size = meeting.calls.size();
  const std::size_t bytes = first.count * size_of(first.type);
  if (first.kind == Kind::all_gather) return gather(meeting, bytes);
  if (first.kind == Kind::broadcast) {
    const std::byte* from = meeting.calls[static_cast<std::size_t>(first.root)]->from;
    for (const auto& call : meeting.calls) std::memmove(call->to, from, bytes);
    return;
  }
  // All sums before any result: results may lie where operands do.
  const bool scatter = first.kind == Kind::reduce_scatter;
  std::vector<float> sums(first.count * (scatter ? size : 1));
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sum_of(meeting, i, first.type);
  for (std::size_t member = 0; member < size; ++member) {
    const std::size_t begin = scatter ? member * first.count : 0;
    for (std::size_t i = 0; i < first.count; ++i) {
      write(meeting.calls[member]->to, i, first.type, sums[begin + i]);
    }
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, size = 1, device = 0;
  std::size_t meetings = 0;                  // that this member's streams were given
  std::deque<std::shared_ptr<Step>> issued;  // not done, in the order of the calls
  bool aborted = false;
  cudaStream_t other = nullptr;  // see stream_of
  std::size_t collectives = 0;   // that this member's program has called
};

namespace {

/// The members' memory, if there is any.
bool is_there(const Meeting& meeting) {
  const std::byte* begin = nullptr;
  return std::ranges::all_of(meeting.calls, [&](const auto& call) {
    if (call->count == 0) return true;
    const Machine& machine = Machine::get();
    return machine.find(call->from, &begin) != nullptr && machine.find(call->to, &begin) != nullptr;
  });
}

/// This member comes to its operation number `number`.
bool arrive(ncclComm& comm, std::size_t number, const Call& call) {
  Clique& clique = *comm.clique;
  if (clique.meetings.size() <= number) clique.meetings.resize(number + 1);
  Meeting& meeting = clique.meetings[number];
  meeting.calls.resize(static_cast<std::size_t>(comm.size));
  auto& mine = meeting.calls[static_cast<std::size_t>(comm.rank)];
  if (mine == nullptr) {
    mine = std::make_unique<Call>(call);
    for (const auto& other : meeting.calls) {
      if (other != nullptr && !other->fits(call)) {
        clique.fail("rank " + std::to_string(comm.rank) + " calls operation " +
                    std::to_string(number) + " unlike another member");
      }
    }
    if (++meeting.arrived == meeting.calls.size() && clique.error == ncclSuccess) {
      if (!is_there(meeting)) {
        clique.fail("memory was freed before a collective was done");
        return false;
      }
      perform(meeting);
      meeting.done = true;
      Machine::get().notify();
    }
  }
  return meeting.done;
}

/// Puts the steps of a call, or of a group of calls, into their streams.
ncclResult_t enqueue(std::vector<Pending> all) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  for (Pending& one : all) {
    machine.give(one.stream, [comm = one.comm, begin = std::move(one.begin)] {
      const auto step = std::make_shared<Step>(begin());
      comm->issued.push_back(step);
      return Work{[comm, step, clique = comm->clique] {
                    if (comm->aborted) return true;
                    if (clique->error != ncclSuccess) return false;
                    if (comm->issued.front() != step || !(*step)()) return false;
                    comm->issued.pop_front();
                    return true;
                  },
                  nullptr};
    });
  }
  return ncclSuccess;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Begin begin) {
  if (comm == nullptr || comm->aborted) return refuse("the communicator is gone");
  if (stream->device != comm->device) return refuse("the stream is of another device");
  if (group_depth == 0) return enqueue({{comm, stream, std::move(begin)}});
  group.push_back({comm, stream, std::move(begin)});
  return ncclSuccess;
}

/// The one given, unless a mistake is planted.
cudaStream_t stream_of(ncclComm& comm, cudaStream_t stream) {
  const bool second = comm.collectives++ % 2 == 1;
  if (!planted("other_stream") && !(planted("two_streams") && second)) return stream;
  if (comm.other == nullptr) cudaStreamCreateWithFlags(&comm.other, cudaStreamNonBlocking);
  return comm.other;
}

ncclResult_t collective(ncclComm_t comm, cudaStream_t stream, const Call& call,
                        std::size_t from_bytes, std::size_t to_bytes) {
  {
    Machine& machine = Machine::get();
    const std::lock_guard lock(machine.mutex);
    const std::byte* begin = nullptr;
    for (const auto& [data, bytes] :
         {std::pair<const std::byte*, std::size_t>{call.from, from_bytes}, {call.to, to_bytes}}) {
      if (bytes == 0) continue;
      if (machine.find(data, &begin) == nullptr || !machine.is_whole(data, bytes)) {
        last_failure = "a buffer is not wholly in one allocation of a device";
        return ncclInvalidArgument;
      }
    }
  }
  Call made = call;
  if (planted("one_less") && comm->rank == 1) --made.count;
  return add(comm, stream_of(*comm, stream), [comm, made]() -> Step {
    return [comm, number = comm->meetings++, made] { return arrive(*comm, number, made); };
  });
}

/// Hands over the first message of a pair where both sides are there.
void exchange(Clique& clique, const std::pair<int, int>& pair) {
  auto& sends = clique.sends[pair];
  auto& receives = clique.receives[pair];
  while (!sends.empty() && !receives.empty()) {
    if (sends.front().bytes != receives.front().bytes) {
      return clique.fail("rank " + std::to_string(pair.first) + " sends another count than rank " +
                         std::to_string(pair.second) + " receives");
    }
    std::memcpy(receives.front().data, sends.front().data, sends.front().bytes);
    *sends.front().done = *receives.front().done = true;
    sends.pop_front();
    receives.pop_front();
    Machine::get().notify();
  }
}

/// Part of a group: all its messages are under way at once, which one step after another is as
/// well, because a step that is not done lets the next ones begin.
ncclResult_t message(ncclComm_t comm, cudaStream_t stream, bool is_send, int peer, void* data,
                     std::size_t bytes) {
  return add(comm, stream, [=]() -> Step {
    const auto done = std::make_shared<bool>(false);
    const auto posted = std::make_shared<bool>(false);
    return [=] {
      Clique& clique = *comm->clique;
      if (!*posted) {
        *posted = true;
        const std::pair<int, int> pair =
            is_send ? std::pair{comm->rank, peer} : std::pair{peer, comm->rank};
        auto& queue = is_send ? clique.sends[pair] : clique.receives[pair];
        queue.push_back({static_cast<std::byte*>(data), bytes, done});
        exchange(clique, pair);
      }
      return *done;
    };
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::uint64_t count = 0;
  const std::lock_guard lock(Machine::get().mutex);
  std::memset(id, 0, sizeof *id);
  ++count;
  std::memcpy(id, &count, sizeof count);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return refuse("only communicators that do not block are known");
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  auto& clique = cliques()[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->members.resize(static_cast<std::size_t>(size));
  for (ncclComm_t other : clique->members) {
    if (other != nullptr && other->device == Machine::device()) {
      return refuse("two ranks of a communicator on one device");
    }
  }
  auto& place = clique->members[static_cast<std::size_t>(rank)];
  if (place != nullptr) return refuse("two members with one rank");
  place = *comm = new ncclComm;
  (*comm)->clique = clique;
  (*comm)->rank = rank;
  (*comm)->size = size;
  (*comm)->device = Machine::device();
  ++clique->joined;
  machine.notify();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(Machine::get().mutex);
  const Clique& clique = *comm->clique;
  *state = clique.error;
  if (clique.error != ncclSuccess) {
    last_failure = clique.message;
  } else if (clique.joined < clique.members.size()) {
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

/// The operations that are under way are done before the communicator says so.
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  machine.wait_until(lock, machine.default_stream(), [comm] { return comm->issued.empty(); });
  comm->clique->members[static_cast<std::size_t>(comm->rank)] = nullptr;
  comm->aborted = true;  // kept: a step of a stream may still look
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  comm->aborted = true;
  comm->issued.clear();
  comm->clique->members[static_cast<std::size_t>(comm->rank)] = nullptr;
  machine.notify();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t sum, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return collective(comm, stream,
                    {Kind::all_reduce, count, type, 0, sum, static_cast<const std::byte*>(from),
                     static_cast<std::byte*>(to)},
                    bytes, bytes);
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t sum, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return collective(comm, stream,
                    {Kind::reduce_scatter, count, type, 0, sum, static_cast<const std::byte*>(from),
                     static_cast<std::byte*>(to)},
                    bytes * static_cast<std::size_t>(comm->size), bytes);
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return collective(comm, stream,
                    {Kind::all_gather, count, type, 0, ncclSum, static_cast<const std::byte*>(from),
                     static_cast<std::byte*>(to)},
                    bytes, bytes * static_cast<std::size_t>(comm->size));
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return collective(comm, stream,
                    {Kind::broadcast, count, type, root, ncclSum,
                     static_cast<const std::byte*>(from), static_cast<std::byte*>(to)},
                    bytes, bytes);
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return message(comm, stream, true, peer, const_cast<void*>(data), count * size_of(type));
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(comm, stream, false, peer, data, count * size_of(type));
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

/// The calls of a group are one operation for each communicator and stream.
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return refuse("a group ends that has not begun");
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Pending> joined;
  for (Pending& one : group) {
    const auto same = std::find_if(joined.begin(), joined.end(), [&](const Pending& other) {
      return other.comm == one.comm && other.stream == one.stream;
    });
    if (same == joined.end()) {
      joined.push_back(std::move(one));
    } else {
      same->begin = [first = std::move(same->begin), second = std::move(one.begin)]() -> Step {
        return [one = first(), other = second()] {
          const bool one_done = one();
          return other() && one_done;
        };
      };
    }
  }
  group.clear();
  return enqueue(std::move(joined));
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "an error of NCCL";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_failure.c_str(); }

}  // extern "C"
