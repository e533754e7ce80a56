#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/units.h"
#include "comm/host/process_state.h"
#include "comm/host/watch.h"
#include "comm/mpi/mpi_group.h"
#include "comm/mpi/mpi_start.h"
#include "comm/rank_words.h"
#include "comm/self_group.h"
#include "comm/world.h"

namespace trainctl {

namespace {

constexpr double abort_seconds = 3;
constexpr int group_tag = 1;  // of MPI_COMM_WORLD, which nothing else uses
constexpr int farewell_tag = 2;
constexpr int hang_tag = 3;

bool is_visible(const MpiPeer& peer, const MpiPeer& self) {
  return std::strcmp(peer.host, self.host) == 0 && self.process_namespace != 0 &&
         peer.process_namespace == self.process_namespace;
}

/// "stopped", "ended" or "" where that cannot be seen from here.
const char* trouble_seen(const MpiPeer& peer, const MpiPeer& self) {
  return is_visible(peer, self) ? trouble_of(peer.process) : "";
}

}  // namespace

std::string MpiShared::describe(int world_rank) const {
  const MpiPeer& peer = peers[static_cast<std::size_t>(world_rank)];
  return "rank " + std::to_string(world_rank) + " (host " + peer.host + ", process " +
         std::to_string(peer.process) + ")";
}

std::string MpiShared::remarks() const {
  std::string text;
  for (std::size_t other = 0; other < peers.size(); ++other) {
    const std::string trouble = trouble_seen(peers[other], peers[static_cast<std::size_t>(rank)]);
    if (!trouble.empty()) text += "; rank " + std::to_string(other) + " is " + trouble;
  }
  return text;
}

namespace {

class MpiWorld : public World {
 public:
  explicit MpiWorld(const WorldOptions& options);
  ~MpiWorld() override;

  int rank() const override { return shared_.rank; }
  int size() const override { return static_cast<int>(shared_.peers.size()); }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const std::string& host() const override { return host_; }
  Traffic& traffic() override { return traffic_; }
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override;
  Activity* activity() override { return &shared_.activity; }
  void check() const override;
  void abort(int exit_code) noexcept override;

 private:
  void find_peers();
  void start_watch();
  void stop_watch();
  int ended_rank() const;
  void tell_others(int ended);
  std::optional<int> is_told();
  void agree_on(const std::string& name, std::span<const int> ranks);
  void leave_together();
  std::string late_text(const MpiRequests& requests) const;
  std::vector<int> every_rank() const;

  const std::string host_ = host_name();
  const int exceptions_before_ = std::uncaught_exceptions();
  MpiShared shared_;
  Traffic traffic_;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::atomic<bool> aborting_{false};
  std::atomic<bool> leaving_{false};     // ranks may end now
  MPI_Request told_ = MPI_REQUEST_NULL;  // that another rank hangs or has ended
  int told_of_ = Watch::none;            // what told_ receives
  int told_others_ = Watch::none;        // what is on its way to the others
  std::unique_ptr<Watch> watch_;         // last: it uses the others
};

MpiWorld::MpiWorld(const WorldOptions& options) {
  shared_.deadline = options.deadline_seconds;
  shared_.check_collectives = options.check_collectives;
  const LaunchedAs launched = launched_as();
  const Joining joining(longest_joining(shared_.deadline), launched, host_);
  shared_.peers.resize(static_cast<std::size_t>(start_mpi(launched, host_)));
  find_peers();
  if (options.report_hangs && size() > 1) start_watch();
}

void MpiWorld::start_watch() {
  MPI_CHECK(MPI_Irecv(&told_of_, 1, MPI_INT, MPI_ANY_SOURCE, hang_tag, MPI_COMM_WORLD, &told_));
  watch_ = std::make_unique<Watch>(
      WatchOptions{.deadline_seconds = shared_.deadline,
                   .world_size = size(),
                   .host = host_,
                   .ranks = {{rank(), &shared_.activity}},
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

/// One cheap call for each rank of this host, as it is asked often.
int MpiWorld::ended_rank() const {
  if (leaving_) return Watch::none;
  const MpiPeer& self = shared_.peers[static_cast<std::size_t>(rank())];
  for (int other = 0; other < size(); ++other) {
    const MpiPeer& peer = shared_.peers[static_cast<std::size_t>(other)];
    if (is_visible(peer, self) && is_gone(peer.process)) return other;
  }
  return Watch::none;
}

void MpiWorld::check() const {
  const int ended = ended_rank();
  if (ended == Watch::none) return;
  throw Error(ExitCode::peer, shared_.describe(ended) + " has ended before its work");
}

void MpiWorld::tell_others(int ended) {
  told_others_ = ended;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(&told_others_, 1, MPI_INT, other, hang_tag, MPI_COMM_WORLD, &request);
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

void MpiWorld::stop_watch() {
  watch_.reset();
  if (told_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&told_);
  MPI_Request_free(&told_);
}

std::optional<int> MpiWorld::is_told() {
  if (told_ == MPI_REQUEST_NULL) return std::nullopt;
  int flag = 0;
  const int result = MPI_Test(&told_, &flag, MPI_STATUS_IGNORE);
  return result == MPI_SUCCESS && flag != 0 ? std::optional(told_of_) : std::nullopt;
}

void MpiWorld::find_peers() {
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
  MPI_CHECK(MPI_Allgather(&self, sizeof self, MPI_BYTE, shared_.peers.data(), sizeof self, MPI_BYTE,
                          MPI_COMM_WORLD));
}

std::unique_ptr<Group> MpiWorld::group(const std::string& name, std::span<const int> ranks) {
  const int place = place_among(ranks, rank());
  require(place >= 0, ExitCode::internal,
          "group '" + name + "' does not hold rank " + std::to_string(rank()));
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
  return std::make_unique<MpiGroup>(name, HostGroup::Members{{ranks.begin(), ranks.end()}, place},
                                    traffic_, shared_, comm);
}

/// Making a communicator blocks without a deadline, so its members meet here first.
void MpiWorld::agree_on(const std::string& name, std::span<const int> ranks) {
  std::uint64_t mine = fnv1a(name);
  for (const int other : ranks) mine = fnv1a("," + std::to_string(other), mine);
  std::vector<std::uint64_t> theirs(ranks.size(), mine);
  WaitNote note(shared_.activity, name, every_rank());
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

std::vector<int> MpiWorld::every_rank() const {
  std::vector<int> ranks(shared_.peers.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string MpiWorld::late_text(const MpiRequests& requests) const {
  std::string who;
  for (const int missing : requests.missing()) {
    who += (who.empty() ? "" : ", ") + shared_.describe(missing);
  }
  return " waited " + format_seconds(requests.waited()) + " for " + who + shared_.remarks();
}

void MpiWorld::abort(int exit_code) noexcept {
  shared_.broken = true;
  tell_launch(RankWord::failed, exit_code);
  try {
    const bool again = aborting_.exchange(true);
    if (!again && watch_) watch_->let_others_speak();
    const EndInTime watchdog(abort_seconds, [exit_code] { _exit(exit_code); });
    if (again) std::this_thread::sleep_for(std::chrono::seconds(60));  // another thread does it
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
  } catch (const std::exception&) {
    _exit(exit_code);  // not even a thread could be started
  }
}

MpiWorld::~MpiWorld() {
  if (shared_.broken || std::uncaught_exceptions() > exceptions_before_) return;
  try {
    leave_together();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

/// MPI_Finalize waits for all ranks without a deadline: first see that they come.
void MpiWorld::leave_together() {
  leaving_ = true;
  WaitNote note(shared_.activity, "world", every_rank());
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

}  // namespace

std::unique_ptr<World> mpi_world(const WorldOptions& options) {
  return std::make_unique<MpiWorld>(options);
}

}  // namespace trainctl
