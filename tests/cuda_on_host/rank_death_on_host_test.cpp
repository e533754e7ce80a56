// A rank that dies within a training step on emulated devices: the others end at once with an error
// that names it, whatever they wait for.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "../engine/sample_run.h"
#include "base/error.h"
#include "catch.h"
#include "contains.h"

using namespace trainctl;

namespace {

constexpr double deadline = 60;

/// Where the rank dies in its step number `step`, from 1 on.
enum class DeathPlace { forward, backward, sum, optimizer };

struct Death {
  int rank;
  int step;
  DeathPlace place;
};

struct Ranks {
  std::vector<std::string> set_options;
  int count;
};

/// Hooks that throw on the rank that dies. Those of the others are empty: their steps may be
/// graphs.
Hooks hooks_of(const Death& death, int& calls) {
  const auto die = [&death, &calls] {
    if (++calls == death.step) throw Error(ExitCode::io, "the disk of this rank is gone");
  };
  Hooks hooks;
  const auto of_first = [die](int, int microbatch, const Tensor&) {
    if (microbatch == 0) die();
  };
  switch (death.place) {
    case DeathPlace::forward:
      hooks.after_forward = [of_first, last = -1](int unit, int m, const Tensor& x) mutable {
        if (last < 0) last = unit;
        if (unit == last) of_first(unit, m, x);
      };
      break;
    case DeathPlace::backward:
      hooks.after_backward = [of_first, last = -1](int unit, int m, const Tensor& x) mutable {
        if (last < 0) last = unit;
        if (unit == last) of_first(unit, m, x);
      };
      break;
    case DeathPlace::sum:
      hooks.grad_sync = [die](int bucket) {
        if (bucket == 1) die();
      };
      break;
    case DeathPlace::optimizer: hooks.finalize_model_grads = [die](ParamStore&) { die(); }; break;
  }
  return hooks;
}

/// Trains four steps; what each rank ends with, "" if it ends by itself.
std::vector<Error> ends_of(const Ranks& layout, const Death& death) {
  std::vector<Error> ends(static_cast<std::size_t>(layout.count), Error(ExitCode::ok, ""));
  const auto body = [&](World& world) {
    int calls = 0;
    SampleRun run{
        .set_options = layout.set_options, .steps = 4, .deadline_seconds = deadline, .world = {}};
    run.set_options.insert(run.set_options.end(),
                           {"parallel.device=cuda", "parallel.bucket_size=2000"});
    if (world.rank() == death.rank) run.hooks = hooks_of(death, calls);
    try {
      train_sample_rank(run, world);
    } catch (const Error& error) {
      ends[static_cast<std::size_t>(world.rank())] = error;
      throw;
    }
  };
  CHECK_THROWS_WITH(run_thread_world(layout.count, {.deadline_seconds = deadline}, body),
                    "the disk of this rank is gone");
  return ends;
}

void check_death(const Ranks& layout, const Death& death) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Error> ends = ends_of(layout, death);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(seconds.count() < deadline / 2);
  const std::string why =
      "rank " + std::to_string(death.rank) + " failed: the disk of this rank is gone";
  for (int rank = 0; rank < layout.count; ++rank) {
    const Error& end = ends[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << end.what());
    if (rank == death.rank) {
      CHECK(end.code() == ExitCode::io);
    } else {
      CHECK(end.code() == ExitCode::peer);
      CHECK(contains(end.what(), why));
    }
  }
}

const Ranks replicas{{"train.micro_batch_size=2"}, 2};
const Ranks sharded{{"parallel.parallel_optimizer.enable=true",
                     "parallel.parallel_optimizer.optimizer_level=level3"},
                    2};

}  // namespace

TEST_CASE("a rank that dies in a step ends its replicas") {
  for (const DeathPlace place :
       {DeathPlace::forward, DeathPlace::backward, DeathPlace::sum, DeathPlace::optimizer}) {
    INFO(static_cast<int>(place));
    check_death(replicas, {1, 2, place});
  }
  check_death(sharded, {0, 2, DeathPlace::sum});
}

TEST_CASE("a rank that dies in a step ends those that share its layers") {
  const Ranks tensor{{"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
                      "parallel.pipeline_stages=2", "train.micro_batch_size=2"},
                     4};
  check_death(tensor, {3, 2, DeathPlace::forward});
  check_death(tensor, {0, 2, DeathPlace::backward});
  const Ranks ring{{"parallel.context_parallel=3", "model.seq_length=18"}, 3};
  check_death(ring, {1, 2, DeathPlace::backward});
}

TEST_CASE("a rank that dies in a step ends those whose steps are graphs") {
  const Ranks graphs{
      {"parallel.pipeline_stages=2", "train.micro_batch_size=2", "parallel.cuda_graphs=true"}, 4};
  check_death(graphs, {2, 3, DeathPlace::backward});  // while the others capture
  check_death(graphs, {1, 4, DeathPlace::forward});
}

TEST_CASE("a rank that dies in a step ends those that wait for rows of experts") {
  const Ranks experts{{"model.family=llama", "moe.num_experts=4", "moe.router_topk=2",
                       "parallel.expert_parallel=2"},
                      2};
  check_death(experts, {1, 2, DeathPlace::forward});
  check_death(experts, {0, 2, DeathPlace::backward});
}

// Run with CUDA_ON_HOST_DEVICES=1.
TEST_CASE("a rank that dies in a step ends those on its device", "[.one_device]") {
  const Ranks stages{{"parallel.tensor_parallel=2", "parallel.pipeline_stages=2",
                      "train.micro_batch_size=2", "parallel.share_devices=true"},
                     4};
  check_death(stages, {3, 2, DeathPlace::forward});
  check_death(stages, {0, 2, DeathPlace::backward});
  Ranks halves = sharded;
  halves.set_options.push_back("parallel.share_devices=true");
  check_death(halves, {0, 2, DeathPlace::sum});
  check_death(halves, {1, 2, DeathPlace::optimizer});
}
