// One fault in a training run, over threads or under mpirun: `test_hang threads|mpi FAULT`. The
// program ends as trainctl does; its output and exit code are what is tested.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "faulty_world.h"
#include "sample_run.h"

namespace trainctl {
namespace {

constexpr double deadline = 2;

struct Mistake {
  std::vector<std::string> layout;  // of four ranks
  std::vector<GroupFault> faults;
  std::function<void(int rank)> hook{};  // in the second step
};

void add(std::vector<GroupFault>& to, const std::vector<GroupFault>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

const std::vector<std::string> tp2_dp2{"parallel.tensor_parallel=2",
                                       "parallel.sequence_parallel=true"};
const std::vector<std::string> tp2_pp2{"parallel.tensor_parallel=2", "parallel.pipeline_stages=2",
                                       "train.micro_batch_size=2"};

/// A stage does not send one of its outputs.
Mistake unsent() { return {tp2_pp2, {{0, "messages pp", GroupOperation::send, 3, left_out()}}}; }

/// One rank makes two collectives of a group in the other order.
Mistake swapped_calls() {
  return {tp2_dp2, exchanged({1, "layers tp", GroupOperation::all_gather, 2, {}},
                             {1, "layers tp", GroupOperation::reduce_scatter, 2, {}})};
}

/// Two ranks begin with the sum over replicas, two with that over tensor-parallel ranks: a circle.
Mistake swapped_groups() {
  Mistake mistake{tp2_dp2, {}};
  for (const int rank : {0, 3}) {
    add(mistake.faults, exchanged({rank, "gradients tp", GroupOperation::all_reduce, 2, {}},
                                  {rank, "gradients dp", GroupOperation::all_reduce, 2, {}}));
  }
  return mistake;
}

/// A rank is stuck in something else than a wait.
Mistake stuck() {
  return {tp2_dp2, {}, [](int rank) {
            while (rank == 1) pause();
          }};
}

Mistake signalled(int signal) {
  return {tp2_dp2, {}, [signal](int rank) {
            if (rank == 3) kill(getpid(), signal);
          }};
}

Mistake mistake_of(const std::string& name) {
  if (name == "unsent") return unsent();
  if (name == "swapped_calls") return swapped_calls();
  if (name == "swapped_groups") return swapped_groups();
  if (name == "stuck") return stuck();
  if (name == "stopped") return signalled(SIGSTOP);
  if (name == "killed") return signalled(SIGKILL);
  throw Error(ExitCode::usage, "no mistake is called " + name);
}

void train(const Mistake& mistake, World& world) {
  set_log_rank(world.rank(), world.size());
  int sums = 0;
  SampleRun run{.set_options = mistake.layout,
                .steps = 3,
                .deadline_seconds = deadline,
                .world = {},
                .hooks = {.grad_sync = [&](int) {
                  if (mistake.hook && ++sums == 2) mistake.hook(world.rank());
                }}};
  const auto faulty = faulty_world(world, mistake.faults);
  train_sample_rank(run, *faulty);
}

int run_threads(const Mistake& mistake, const WorldOptions& options) {
  run_thread_world(4, options, [&](World& world) { train(mistake, world); });
  return 0;
}

int run_mpi(const Mistake& mistake, const WorldOptions& options) {
  const std::unique_ptr<World> world = mpi_world(options);
  try {
    train(mistake, *world);
  } catch (const Error& error) {
    log_error(error.what());
    world->abort(static_cast<int>(error.code()));
  }
  return 0;
}

int run(const std::string& wire, const std::string& name, bool compare) {
  const WorldOptions options{
      .deadline_seconds = deadline, .check_collectives = compare, .report_hangs = true};
  try {
    const Mistake mistake = mistake_of(name);
    return wire == "mpi" ? run_mpi(mistake, options) : run_threads(mistake, options);
  } catch (const Error& error) {
    log_error(error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace trainctl

int main(int count, char** arguments) {
  if (count < 3) return 2;
  return trainctl::run(arguments[1], arguments[2], count == 3);
}
