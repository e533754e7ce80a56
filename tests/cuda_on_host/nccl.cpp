// The functions of NCCL that the CUDA module calls, for ranks that are threads of one process. A
// communicator's operations run in the order of the calls, each once it is first in its stream and
// all members have come to the same operation; that all call it alike is checked.
#include <nccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "machine.h"
#include "nccl_comm.h"
#include "planted.h"

using namespace cuda_on_host;

namespace {

/// Begins such work; a graph does so at each launch.
using Begin = std::function<Step()>;

struct Pending {
  ncclComm_t comm;
  cudaStream_t stream;
  Begin begin;
};

thread_local int group_depth = 0;
thread_local std::vector<Pending> group;
std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static std::map<std::string, std::shared_ptr<Clique>> all;
  return all;
}

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
    // Where a member was aborted after its call, the others wait until they are aborted, too.
    const bool all_there = std::ranges::find(clique.members, nullptr) == clique.members.end();
    if (++meeting.arrived == meeting.calls.size() && all_there && clique.error == ncclSuccess) {
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
    machine.give(one.stream,
                 [comm = one.comm, begin = std::move(one.begin), held = one.comm->graphs] {
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
  if (comm->clique == nullptr) return refuse("the communicator is not formed yet");
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
        last_nccl_failure() = "a buffer is not wholly in one allocation of a device";
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

/// A communicator ends. Its split, if others have not called it, no longer fills what it would.
void leave(ncclComm& comm) {
  if (comm.graphs.use_count() > 1) {
    std::fprintf(stderr, "NCCL on the host: a communicator ends while a graph has its calls\n");
    std::abort();  // NCCL would wait for ever
  }
  comm.aborted = true;
  if (comm.clique == nullptr) return;
  const auto rank = static_cast<std::size_t>(comm.rank);
  for (Split& split : comm.clique->splits) {
    if (rank < split.parts.size()) split.parts[rank].slot = nullptr;
  }
  // Messages that it posted and nobody took are withdrawn: their memory may be freed from now on.
  std::erase_if(comm.clique->sends,
                [&](const auto& waiting) { return waiting.first.first == comm.rank; });
  std::erase_if(comm.clique->receives,
                [&](const auto& waiting) { return waiting.first.second == comm.rank; });
  comm.clique->members[rank] = nullptr;
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
  place = *comm = new_communicator();
  (*comm)->clique = clique;
  (*comm)->rank = rank;
  (*comm)->size = size;
  ++clique->joined;
  machine.notify();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(Machine::get().mutex);
  *state = ncclInProgress;
  if (comm->clique == nullptr) return ncclSuccess;  // of a split that others have not called
  const Clique& clique = *comm->clique;
  *state = clique.error;
  if (clique.error != ncclSuccess) {
    last_nccl_failure() = clique.message;
  } else if (clique.joined < clique.members.size() || comm->splits_now()) {
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

/// The operations that are under way are done before the communicator says so.
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  machine.wait_until(lock, nullptr, [comm] { return comm->issued.empty(); });
  leave(*comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  leave(*comm);
  comm->issued.clear();
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

const char* ncclGetLastError(ncclComm_t) { return last_nccl_failure().c_str(); }

}  // extern "C"
