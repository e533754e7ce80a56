#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include "base/at.h"
#include "base/collectives.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/host/host_group.h"
#include "comm/host/watch.h"
#include "comm/mpi/mpi_calls.h"
#include "comm/rank_words.h"
#include "comm/this_host.h"
#include "comm/world.h"
#include "device/slab.h"

namespace trainctl {

// Ranks that are MPI processes; internal to comm/. MPI only carries bytes: sums use our own code,
// so they are the same as those of threads.

class MpiGroup : public HostGroup {
 public:
  /// Takes over `comm`, whose rank i is world rank ranks[i].
  MpiGroup(std::string name, std::vector<int> ranks, int rank, Traffic& traffic, MpiShared& shared,
           MPI_Comm comm);
  ~MpiGroup() override;

 private:
  /// A sum is split into pieces of at most piece_bytes_ per rank, so that exchange, summation and
  /// distribution of successive pieces overlap in two slots of staging memory.
  struct Cut {
    std::int64_t total;      // elements of a piece
    std::int64_t per_rank;   // elements of each rank's shard; the last may be shorter
    std::int64_t per_piece;  // elements of a piece
    std::int64_t element;    // bytes of an element
    std::int64_t begin(int rank, std::int64_t piece) const;
    std::int64_t count(int rank, std::int64_t piece) const;
    std::int64_t pieces() const { return (per_rank + per_piece - 1) / per_piece; }
  };

  void compare_calls(const CollectiveCall& mine) override;
  void do_all_reduce(const Tensor& data) override;
  void do_reduce_scatter(const Tensor& data, const Tensor& shard) override;
  void do_all_gather(const Tensor& shard, const Tensor& data) override;
  void do_broadcast(const Tensor& data, int root) override;
  void do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) override;
  void do_barrier() override;
  void post(const Message& message) override;
  std::string describe(int rank) const override;
  std::string remarks() const override { return shared_.remarks(); }

  Cut cut(std::int64_t per_rank, const Tensor& data) const;
  void all_reduce_at_once(const Tensor& data);
  void gather_by_doubling(const Tensor& shard, const Tensor& data);
  void reduce_in_pieces(const Tensor& data, const Cut& cut, std::byte* out, bool distribute);
  void post_exchange(const Tensor& data, const Cut& cut, std::int64_t piece);
  void sum_piece(const Tensor& data, const Cut& cut, std::int64_t piece, std::byte* out);
  void post_distribution(const Tensor& data, const Cut& cut, std::int64_t piece);
  void have_staging();
  std::byte* staged(std::int64_t slot, int peer) const;
  void finish(MpiRequests& requests, const char* operation);

  MpiShared& shared_;
  MPI_Comm comm_;
  std::int64_t piece_bytes_;
  std::byte* staging_ = nullptr;
  std::array<MpiRequests, 2> exchanges_;
  std::array<MpiRequests, 2> distributions_;
  std::vector<const void*> sources_;
  std::vector<CollectiveCall> calls_;  // the call of each rank, when calls are compared
};

namespace {

// Tags of the group's communicator. Messages between two ranks keep their order per tag.
enum Tag : int { exchange_tag, distribution_tag, plain_tag, call_tag, first_posted_tag };

constexpr std::int64_t at_once_bytes = 16 << 10;  // up to this size one exchange is fastest

}  // namespace

MpiGroup::MpiGroup(std::string name, std::vector<int> ranks, int rank, Traffic& traffic,
                   MpiShared& shared, MPI_Comm comm)
    : HostGroup(std::move(name), std::move(ranks), rank, shared.deadline, shared.activity, traffic),
      shared_(shared),
      comm_(comm),
      piece_bytes_(staging_piece_bytes(size())),
      exchanges_{MpiRequests(shared, comm, note()), MpiRequests(shared, comm, note())},
      distributions_{MpiRequests(shared, comm, note()), MpiRequests(shared, comm, note())},
      sources_(static_cast<std::size_t>(size())) {}

MpiGroup::~MpiGroup() {
  const bool under_way = shared_.progress.forget(posted());
  // After a failure MPI may still write to the staging memory, and freeing is collective.
  if (under_way || shared_.broken || std::uncaught_exceptions() > 0) return;
  device_release(MemoryKind::host, staging_, staging_bytes(size()));
  MPI_Comm_free(&comm_);
}

std::string MpiGroup::describe(int rank) const { return shared_.describe(at(ranks(), rank)); }

void MpiGroup::finish(MpiRequests& requests, const char* operation) {
  if (requests.wait()) return;
  throw Error(ExitCode::peer, late_text(operation, requests.waited(), requests.missing()));
}

/// Every rank sends to every other rank, so all ranks name the same missing rank and no other.
void MpiGroup::compare_calls(const CollectiveCall& mine) {
  if (!shared_.check_collectives) return;
  calls_.resize(static_cast<std::size_t>(size()), mine);
  MpiRequests& requests = exchanges_[0];
  for (int peer = 0; peer < size(); ++peer) {
    CollectiveCall& theirs = at(calls_, peer);
    if (peer != rank()) requests.receive(&theirs, sizeof theirs, peer, call_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(&mine, sizeof mine, (rank() + step) % size(), call_tag);
  }
  finish(requests, name_of(mine.operation));
  for (int peer = 0; peer < size(); ++peer) {
    const CollectiveCall& theirs = at(calls_, peer);
    if (peer == rank() || theirs == mine) continue;
    shared_.broken = true;
    calls_differ(peer, theirs);
  }
}

std::int64_t MpiGroup::Cut::begin(int rank, std::int64_t piece) const {
  return rank * per_rank + piece * per_piece;
}

std::int64_t MpiGroup::Cut::count(int rank, std::int64_t piece) const {
  const std::int64_t end = std::min(total, (rank + 1) * per_rank);
  return std::clamp(end - begin(rank, piece), std::int64_t{0}, per_piece);
}

MpiGroup::Cut MpiGroup::cut(std::int64_t per_rank, const Tensor& data) const {
  const std::int64_t element = size_of(data.dtype);
  return {data.numel(), per_rank, piece_bytes_ / element, element};
}

std::byte* MpiGroup::staged(std::int64_t slot, int peer) const {
  const int place = peer < rank() ? peer : peer - 1;
  return staging_ + (slot * (size() - 1) + place) * piece_bytes_;
}

/// Allocates the memory at the first sum, which is in the first step; other groups need none.
void MpiGroup::have_staging() {
  if (staging_ != nullptr) return;
  const std::int64_t bytes = staging_bytes(size());
  staging_ = static_cast<std::byte*>(device_allocate(MemoryKind::host, bytes));
  add_memory(bytes);
}

void MpiGroup::do_all_reduce(const Tensor& data) {
  have_staging();
  if (data.bytes() <= at_once_bytes) {
    all_reduce_at_once(data);
    return;
  }
  const std::int64_t share = (data.numel() + size() - 1) / size();
  const Cut shards = cut((share + part_unit - 1) / part_unit * part_unit, data);
  reduce_in_pieces(data, shards, bytes_of(data) + shards.begin(rank(), 0) * shards.element, true);
}

void MpiGroup::do_reduce_scatter(const Tensor& data, const Tensor& shard) {
  have_staging();
  reduce_in_pieces(data, cut(shard.numel(), data), bytes_of(shard), false);
}

/// Every rank sends all its data to every other rank: one step instead of two.
void MpiGroup::all_reduce_at_once(const Tensor& data) {
  MpiRequests& requests = exchanges_[0];
  for (int peer = 0; peer < size(); ++peer) {
    sources_[static_cast<std::size_t>(peer)] = peer == rank() ? bytes_of(data) : staged(0, peer);
    if (peer != rank()) requests.receive(staged(0, peer), data.bytes(), peer, exchange_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(data.data, data.bytes(), (rank() + step) % size(), exchange_tag);
  }
  finish(requests, "all_reduce");
  sum_in_rank_order(data.data, sources_, data.numel(), data.dtype);
}

/// Writes this rank's shard of the sum to `out`. With `distribute`, also writes every rank's shard
/// to its place in `data`, where `out` is the place of this rank.
void MpiGroup::reduce_in_pieces(const Tensor& data, const Cut& cut, std::byte* out,
                                bool distribute) {
  const char* operation = distribute ? "all_reduce" : "reduce_scatter";
  const std::int64_t pieces = cut.pieces();
  for (std::int64_t step = 0; step < pieces + 2; ++step) {
    if (step < pieces) post_exchange(data, cut, step);
    if (step >= 1 && step - 1 < pieces) {
      finish(at(exchanges_, (step - 1) % 2), operation);
      sum_piece(data, cut, step - 1, out);
      if (distribute) post_distribution(data, cut, step - 1);
    }
    if (step >= 2 && distribute) {
      finish(at(distributions_, (step - 2) % 2), operation);
    }
  }
}

void MpiGroup::post_exchange(const Tensor& data, const Cut& cut, std::int64_t piece) {
  MpiRequests& requests = at(exchanges_, piece % 2);
  const std::int64_t mine = cut.count(rank(), piece) * cut.element;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) requests.receive(staged(piece % 2, peer), mine, peer, exchange_tag);
  }
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    requests.send(bytes_of(data) + cut.begin(peer, piece) * cut.element,
                  cut.count(peer, piece) * cut.element, peer, exchange_tag);
  }
}

void MpiGroup::sum_piece(const Tensor& data, const Cut& cut, std::int64_t piece, std::byte* out) {
  for (int peer = 0; peer < size(); ++peer) {
    at(sources_, peer) = peer == rank() ? bytes_of(data) + cut.begin(rank(), piece) * cut.element
                                        : staged(piece % 2, peer);
  }
  sum_in_rank_order(out + piece * cut.per_piece * cut.element, sources_, cut.count(rank(), piece),
                    data.dtype);
}

void MpiGroup::post_distribution(const Tensor& data, const Cut& cut, std::int64_t piece) {
  MpiRequests& requests = at(distributions_, piece % 2);
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + size() - step) % size();
    requests.receive(bytes_of(data) + cut.begin(peer, piece) * cut.element,
                     cut.count(peer, piece) * cut.element, peer, distribution_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(bytes_of(data) + cut.begin(rank(), piece) * cut.element,
                  cut.count(rank(), piece) * cut.element, (rank() + step) % size(),
                  distribution_tag);
  }
}

void MpiGroup::do_all_gather(const Tensor& shard, const Tensor& data) {
  if (gathers_by_doubling(size(), data.bytes())) {
    gather_by_doubling(shard, data);
    return;
  }
  MpiRequests& requests = exchanges_[0];
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    requests.receive(bytes_of(data) + peer * shard.bytes(), shard.bytes(), peer, plain_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(shard.data, shard.bytes(), (rank() + step) % size(), plain_tag);
  }
  copy_bytes(bytes_of(data) + rank() * shard.bytes(), bytes_of(shard), shard.bytes());
  finish(requests, "all_gather");
}

/// In each round a rank sends all shards that it has: its own and the following ones. The
/// receiver's rank is lower by the number of these shards, so shards only ever come from later
/// ranks, and around the end from rank 0 on.
void MpiGroup::gather_by_doubling(const Tensor& shard, const Tensor& data) {
  MpiRequests& requests = exchanges_[0];
  const auto for_runs = [&](int first, int count, const auto& pass) {
    const int before_end = std::min(count, size() - first);
    pass(bytes_of(data) + first * shard.bytes(), before_end * shard.bytes());
    pass(bytes_of(data), (count - before_end) * shard.bytes());
  };
  copy_bytes(bytes_of(data) + rank() * shard.bytes(), bytes_of(shard), shard.bytes());
  for (int have = 1; have < size(); have *= 2) {
    const int count = std::min(have, size() - have);
    const int to = (rank() + size() - have) % size();
    const int from = (rank() + have) % size();
    for_runs(from, count, [&](std::byte* place, std::int64_t bytes) {
      requests.receive(place, bytes, from, plain_tag);
    });
    for_runs(rank(), count, [&](const std::byte* place, std::int64_t bytes) {
      requests.send(place, bytes, to, plain_tag);
    });
    finish(requests, "all_gather");
  }
}

void MpiGroup::do_broadcast(const Tensor& data, int root) {
  MpiRequests& requests = exchanges_[0];
  if (rank() == root) {
    for (int step = 1; step < size(); ++step) {
      requests.send(data.data, data.bytes(), (rank() + step) % size(), plain_tag);
    }
  } else {
    requests.receive(data.data, data.bytes(), root, plain_tag);
  }
  finish(requests, "broadcast");
}

void MpiGroup::do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) {
  MpiRequests& requests = exchanges_[0];
  const std::int64_t element = size_of(send.dtype);
  std::int64_t from = 0;
  std::int64_t to = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t sent = at(counts.send, peer) * element;
    const std::int64_t received = at(counts.receive, peer) * element;
    if (peer == rank()) {
      copy_bytes(bytes_of(receive) + to, bytes_of(send) + from, std::min(sent, received));
    } else {
      requests.receive(bytes_of(receive) + to, received, peer, plain_tag);
      requests.send(bytes_of(send) + from, sent, peer, plain_tag);
    }
    from += sent;
    to += received;
  }
  finish(requests, "all_to_all");
}

void MpiGroup::do_barrier() {
  MpiRequests& requests = exchanges_[0];
  for (int step = 1; step < size(); ++step) {
    requests.receive_sign((rank() + size() - step) % size(), plain_tag);
    requests.send_sign((rank() + step) % size(), plain_tag);
  }
  finish(requests, "barrier");
}

void MpiGroup::post(const Message& message) {
  const int tag = first_posted_tag + message.tag;
  const std::int64_t bytes = message.data.bytes();
  const auto parts =
      std::max(std::int64_t{1}, (bytes + longest_mpi_message - 1) / longest_mpi_message);
  posted().begin(message.ticket, static_cast<int>(parts));
  for (std::int64_t part = 0; part < parts; ++part) {
    std::byte* data = bytes_of(message.data) + part * longest_mpi_message;
    const std::int64_t length = std::min(longest_mpi_message, bytes - part * longest_mpi_message);
    MPI_Request request;
    if (message.sends) {
      MPI_CHECK(
          MPI_Isend(data, static_cast<int>(length), MPI_BYTE, message.peer, tag, comm_, &request));
    } else {
      MPI_CHECK(
          MPI_Irecv(data, static_cast<int>(length), MPI_BYTE, message.peer, tag, comm_, &request));
    }
    shared_.progress.add(request, posted(), message.ticket, message.sends ? -1 : length);
  }
}

namespace {

constexpr double abort_seconds = 3;
constexpr int group_tag = 1;  // tags of MPI_COMM_WORLD, which only this file uses
constexpr int farewell_tag = 2;
constexpr int hang_tag = 3;

bool is_visible(const MpiPeer& peer, const MpiPeer& self) {
  return std::strcmp(peer.host, self.host) == 0 && self.process_namespace != 0 &&
         peer.process_namespace == self.process_namespace;
}

/// "stopped" or "ended"; "" if alive or not visible from here.
const char* trouble_seen(const MpiPeer& peer, const MpiPeer& self) {
  return is_visible(peer, self) ? trouble_of(peer.process) : "";
}

}  // namespace

std::string MpiShared::describe(int world_rank) const {
  const MpiPeer& peer = at(peers, world_rank);
  return formatted("rank {} (host {}, process {})", world_rank, peer.host, peer.process);
}

std::string MpiShared::remarks() const {
  std::string text;
  for (std::size_t other = 0; other < peers.size(); ++other) {
    const std::string trouble = trouble_seen(peers[other], at(peers, rank));
    if (!trouble.empty()) text += formatted("; rank {} is {}", other, trouble);
  }
  return text;
}

namespace {

class MpiWorld : public World {
 public:
  explicit MpiWorld(const WorldOptions& options) {
    shared_.deadline = options.deadline_seconds;
    shared_.check_collectives = options.check_collectives;
    const LaunchedAs launched = launched_as();
    const EndInTime joining =
        end_joining_in_time(longest_joining(shared_.deadline), launched, host_);
    shared_.peers.resize(static_cast<std::size_t>(start_mpi(launched, host_)));
    find_peers();
    if (options.report_hangs && size() > 1) start_watch();
  }

  ~MpiWorld() override {
    if (shared_.broken || std::uncaught_exceptions() > exceptions_before_) return;
    try {
      leave_together();
    } catch (const std::exception& error) {
      log_error(error.what());
    }
  }

  int rank() const override { return shared_.rank; }
  int size() const override { return static_cast<int>(shared_.peers.size()); }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const std::string& host() const override { return host_; }
  Traffic& traffic() override { return traffic_; }
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    const int place = place_in_group(name, ranks, rank());
    if (ranks.size() == 1) return self_group(name);
    agree_on(name, ranks);
    MPI_Group everybody = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_CHECK(MPI_Comm_group(MPI_COMM_WORLD, &everybody));
    MPI_CHECK(MPI_Group_incl(everybody, static_cast<int>(ranks.size()), ranks.data(), &members));
    MPI_CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, members, group_tag, &comm));
    MPI_CHECK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    MPI_CHECK(MPI_Group_free(&members));
    MPI_CHECK(MPI_Group_free(&everybody));
    return std::make_unique<MpiGroup>(name, std::vector<int>(ranks.begin(), ranks.end()), place,
                                      traffic_, shared_, comm);
  }

  Activity* activity() override { return &shared_.activity; }
  void check() const override {
    const int ended = ended_rank();
    if (ended == Watch::none) return;
    throw Error(ExitCode::peer, shared_.describe(ended) + " has ended before its work");
  }

  void abort(int exit_code) noexcept override {
    shared_.broken = true;
    tell_launch(RankWord::failed, exit_code);
    try {
      const bool again = aborting_.exchange(true);
      if (!again && watch_) watch_->let_others_speak();
      const EndInTime watchdog(abort_seconds, [exit_code] { _exit(exit_code); });
      if (again) std::this_thread::sleep_for(std::chrono::seconds(60));  // another thread aborts
      MPI_Abort(MPI_COMM_WORLD, exit_code);
      _exit(exit_code);
    } catch (const std::exception&) {
      _exit(exit_code);  // not even a thread could be started
    }
  }

 private:
  void find_peers() {
    MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &shared_.rank));
    MPI_Comm node = MPI_COMM_NULL;
    MPI_CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    MPI_CHECK(MPI_Comm_rank(node, &local_rank_));
    MPI_CHECK(MPI_Comm_size(node, &local_size_));
    MPI_CHECK(MPI_Comm_free(&node));
    shared_.crowded = local_size_ > cores_of_this_process();
    MpiPeer self{};
    host_.copy(self.host, sizeof self.host - 1);
    self.process = getpid();
    self.process_namespace = process_namespace();
    MPI_CHECK(MPI_Allgather(&self, sizeof self, MPI_BYTE, shared_.peers.data(), sizeof self,
                            MPI_BYTE, MPI_COMM_WORLD));
  }

  void start_watch() {
    MPI_CHECK(MPI_Irecv(&told_of_, 1, MPI_INT, MPI_ANY_SOURCE, hang_tag, MPI_COMM_WORLD, &told_));
    watch_ = std::make_unique<Watch>(
        WatchOptions{.deadline_seconds = shared_.deadline,
                     .world_size = size(),
                     .host = host_,
                     .first_rank = rank(),
                     .activities = {&shared_.activity},
                     .describe_rank = [this](int other) { return shared_.describe(other); },
                     .remarks = [this] { return shared_.remarks(); },
                     .ended_rank = [this] { return ended_rank(); },
                     .tell_others = [this](int ended) { tell_others(ended); },
                     .is_told = [this] { return is_told(); },
                     .end =
                         [this] {
                           if (!aborting_) abort(static_cast<int>(ExitCode::peer));
                         }});
  }

  void stop_watch() {
    watch_.reset();
    if (told_ == MPI_REQUEST_NULL) return;
    MPI_Cancel(&told_);
    MPI_Request_free(&told_);
  }

  /// Makes one cheap system call for each rank of this host, since it is called often.
  int ended_rank() const {
    if (leaving_) return Watch::none;
    const MpiPeer& self = at(shared_.peers, rank());
    for (int other = 0; other < size(); ++other) {
      const MpiPeer& peer = at(shared_.peers, other);
      if (is_visible(peer, self) && is_gone(peer.process)) return other;
    }
    return Watch::none;
  }

  void tell_others(int ended) {
    told_others_ = ended;
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(&told_others_, 1, MPI_INT, other, hang_tag, MPI_COMM_WORLD, &request);
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }

  std::optional<int> is_told() {
    if (told_ == MPI_REQUEST_NULL) return std::nullopt;
    int flag = 0;
    const int result = MPI_Test(&told_, &flag, MPI_STATUS_IGNORE);
    return result == MPI_SUCCESS && flag != 0 ? std::optional(told_of_) : std::nullopt;
  }

  /// All members meet here first, since creating a communicator blocks without a deadline.
  void agree_on(const std::string& name, std::span<const int> ranks) {
    std::uint64_t mine = fnv1a(name);
    for (const int other : ranks) mine = fnv1a("," + std::to_string(other), mine);
    std::vector<std::uint64_t> theirs(ranks.size(), mine);
    WaitNote note(shared_.activity, name, all_ranks());
    MpiRequests requests(shared_, MPI_COMM_WORLD, note);
    note.begin("making group", 0);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == rank()) continue;
      requests.receive(&theirs[i], sizeof mine, ranks[i], group_tag);
      requests.send(&mine, sizeof mine, ranks[i], group_tag);
    }
    if (!requests.wait()) {
      throw Error(ExitCode::peer, "creating group '" + name + "'" + late_text(requests));
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (theirs[i] == mine) continue;
      shared_.broken = true;
      throw Error(ExitCode::peer, "creating group '" + name + "': " + shared_.describe(ranks[i]) +
                                      " creates another one at this point");
    }
  }

  /// Waits for all ranks with a deadline, since MPI_Finalize waits for them without one.
  void leave_together() {
    leaving_ = true;
    WaitNote note(shared_.activity, "world", all_ranks());
    MpiRequests requests(shared_, MPI_COMM_WORLD, note);
    note.begin("leaving", 0);
    for (int other = 0; other < size(); ++other) {
      if (other == rank()) continue;
      requests.receive_sign(other, farewell_tag);
      requests.send_sign(other, farewell_tag);
    }
    if (!requests.wait()) {
      throw Error(ExitCode::peer, "the end of the job" + late_text(requests));
    }
    const EndInTime watchdog(shared_.deadline, [] { _exit(static_cast<int>(ExitCode::peer)); });
    stop_watch();
    MPI_Finalize();
  }

  std::string late_text(const MpiRequests& requests) const {
    std::string who;
    for (const int missing : requests.missing()) {
      who += (who.empty() ? "" : ", ") + shared_.describe(missing);
    }
    return " waited " + format_seconds(requests.waited()) + " for " + who + shared_.remarks();
  }

  const std::string host_ = host_name();
  const int exceptions_before_ = std::uncaught_exceptions();
  MpiShared shared_;
  Traffic traffic_;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::atomic<bool> aborting_{false};
  std::atomic<bool> leaving_{false};     // ranks may end now
  MPI_Request told_ = MPI_REQUEST_NULL;  // receives that another rank hangs or has ended
  int told_of_ = Watch::none;            // the value that told_ receives
  int told_others_ = Watch::none;        // the value being sent to the others
  std::unique_ptr<Watch> watch_;         // last member: it uses the others
};

}  // namespace

std::unique_ptr<World> mpi_world(const WorldOptions& options) {
  return std::make_unique<MpiWorld>(options);
}

}  // namespace trainctl
