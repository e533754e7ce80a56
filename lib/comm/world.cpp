#include "comm/world.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <exception>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace trainctl {

Traffic::Row& Traffic::row(const std::string& group) {
  const auto same = std::ranges::find_if(rows_, [&](const Row& row) { return row.group == group; });
  return same != rows_.end() ? *same : rows_.emplace_back(Row{group, {}, 0});
}

Traffic::Counts Traffic::counts() const {
  Counts all;
  for (const Row& row : rows_) all.push_back(row.uses);
  return all;
}

void Traffic::repeat(const Counts& earlier, const Counts& later) {
  for (std::size_t row = 0; row < later.size(); ++row) {
    for (std::size_t i = 0; i < operation_count; ++i) {
      const Use before = row < earlier.size() ? earlier[row][i] : Use{};
      rows_[row].uses[i].count += later[row][i].count - before.count;
      rows_[row].uses[i].bytes += later[row][i].bytes - before.bytes;
    }
  }
}

void Traffic::begin() {
  for (Row& row : rows_) row.uses = {};
  counting_ = true;
}

namespace {

class SelfGroup : public Group {
 public:
  explicit SelfGroup(std::string name) : name_(std::move(name)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  double deadline_seconds() const override { return std::numeric_limits<double>::infinity(); }

  void all_reduce(const Tensor&, Stream&) override {}
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    copy("reduce_scatter", data, shard, stream);
  }
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    copy("all_gather", shard, data, stream);
  }
  void broadcast(const Tensor&, int root, Stream&) override {
    assert(root == 0);
    static_cast<void>(root);
  }
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    assert(send_counts.size() == 1 && send_counts[0] == send.numel());
    assert(receive_counts.size() == 1 && receive_counts[0] == receive.numel());
    static_cast<void>(send_counts);
    static_cast<void>(receive_counts);
    copy("all_to_all", send, receive, stream);
  }
  Event send(const Tensor&, int, int, Stream&) override { refuse("send"); }
  Event receive(const Tensor&, int, int, Stream&) override { refuse("receive"); }
  void barrier(Stream&) override {}

 private:
  void copy(const char* operation, const Tensor& from, const Tensor& to, Stream& stream) const {
    if (from.bytes() != to.bytes()) {
      throw Error(ExitCode::internal, "[" + std::string(operation) + "] '" + name_ +
                                          "': " + from.shape.to_string() + " does not fit " +
                                          to.shape.to_string());
    }
    if (from.data != to.data && from.bytes() > 0) stream.copy(to, from);
  }
  [[noreturn]] void refuse(const char* operation) const {
    throw Error(ExitCode::internal,
                "[" + std::string(operation) + "] '" + name_ + "' has no other rank");
  }

  const std::string name_;
};

class SelfWorld : public World {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }
  const std::string& host() const override { return host_; }
  Traffic& traffic() override { return traffic_; }
  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override {
    require(ranks.size() == 1 && ranks[0] == 0, ExitCode::internal,
            "group '" + name + "' asks for ranks of a world that has one");
    return self_group(name);
  }
  void abort(int) noexcept override {}

 private:
  const std::string host_ = host_name();
  Traffic traffic_;
};

}  // namespace

std::unique_ptr<Group> self_group(const std::string& name) {
  return std::make_unique<SelfGroup>(name);
}

int place_in_group(const std::string& name, std::span<const int> ranks, int rank) {
  const auto place = std::ranges::find(ranks, rank);
  require(place != ranks.end(), ExitCode::internal,
          formatted("group '{}' does not hold rank {}", name, rank));
  return static_cast<int>(place - ranks.begin());
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::unique_ptr<World> self_world() { return std::make_unique<SelfWorld>(); }

void run_world(int local_ranks, const WorldOptions& options,
               const std::function<void(World&)>& body) {
  if (local_ranks > 0) return run_thread_world(local_ranks, options, body);
  if (launched_as().size > 1) return run_mpi_world(options, body);
  body(*self_world());
}

namespace {

/// A whole non-negative number from the environment, or -1.
int number_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return -1;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  return *end == '\0' && value >= 0 && value < 1 << 30 ? static_cast<int>(value) : -1;
}

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};

// mpirun inside a Slurm job sees Slurm's variables as well, hence the order. The number of tasks
// of a job step is more exact than that of the whole job.
constexpr Launcher launchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
};

}  // namespace

LaunchedAs launched_as() {
  for (const Launcher& launcher : launchers) {
    const int rank = number_from(launcher.rank);
    const int size = number_from(launcher.size);
    if (rank >= 0 && size >= 1 && rank < size) return {rank, size, launcher.name};
  }
  return {};
}

std::vector<int> World::all_ranks() const {
  std::vector<int> ranks(static_cast<std::size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::unique_ptr<Group> World::everyone(const std::string& name) { return group(name, all_ranks()); }

void run_mpi_world(const WorldOptions& options, const std::function<void(World&)>& body) {
  const std::unique_ptr<World> world = mpi_world(options);
  try {
    body(*world);
  } catch (const Error& error) {
    log_error(error.what());
    world->abort(static_cast<int>(error.code()));
  } catch (const std::exception& error) {
    log_error(std::string("unexpected: ") + error.what());
    world->abort(static_cast<int>(ExitCode::internal));
  }
}

}  // namespace trainctl
