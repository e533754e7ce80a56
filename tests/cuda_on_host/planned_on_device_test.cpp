// The engine makes on a rank's device exactly what the plan counts there.
#include <dlfcn.h>

#include <algorithm>
#include <mutex>

#include "../engine/sample_run.h"
#include "catch.h"
#include "device/cuda_device.h"
#include "faults.h"
#include "plan/cost/estimate.h"

using namespace trainctl;

namespace {

/// Made and not destroyed on a device of the module.
std::int64_t streams_on(int device) {
  void* module = dlopen(cuda_module_file().c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(module != nullptr);
  void* symbol = dlsym(module, "cuda_on_host_faults");
  REQUIRE(symbol != nullptr);
  return reinterpret_cast<const cuda_on_host::Faults* (*)()>(symbol)()->streams(device);
}

}  // namespace

TEST_CASE("the streams of a rank are those that the plan counts") {
  struct Case {
    std::vector<std::string> set_options;
    int ranks;
    std::int64_t most;  // of a rank
  };
  const Case cases[] = {
      {{}, 1, 2},
      {{"parallel.pipeline_stages=3", "parallel.virtual_pipeline_stages=2", "model.num_layers=6",
        "train.global_batch_size=6", "train.micro_batch_size=1"},
       3,
       10},
      {{"parallel.context_parallel=2", "offload.enable=true", "offload.num_layers=1"}, 2, 11},
      {{"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
        "parallel.tp_comm_overlap.enable=true"},
       2,
       3}};
  for (const Case& one : cases) {
    std::mutex mutex;
    std::int64_t most = 0;
    SampleRun run{.set_options = one.set_options, .ranks = one.ranks, .steps = 1, .world = {}};
    run.set_options.emplace_back("parallel.device=cuda");
    run.inspect = [&](Engine&, const Plan& plan, World& world) {
      const std::lock_guard lock(mutex);
      const auto stage = static_cast<int>(plan.mesh.coordinate(world.rank(), Axis::pp));
      const std::int64_t planned = count_streams(plan, stage).total();
      CHECK(streams_on(world.rank()) == planned);
      most = std::max(most, planned);
    };
    train_sample(run);
    CHECK(most == one.most);
  }
}

TEST_CASE("the page-locked memory for batches is what the plan counts") {
  struct Case {
    std::vector<std::string> set_options;
    int ranks;
  };
  const std::string small = "train.micro_batch_size=1";
  const std::string documents = "data.reset_attention_mask=true";
  const Case cases[] = {
      {{small}, 1},
      {{small, "parallel.cuda_graphs=true"}, 2},
      {{small, documents, "parallel.pipeline_stages=2"}, 2},
      {{small, documents, "parallel.pipeline_stages=2", "parallel.cuda_graphs=true"}, 2},
      {{"parallel.context_parallel=2", "parallel.cp_comm_type=a2a"}, 2},
      {{small, "train.rampup_batch_size=[4, 4, 8]", "parallel.cuda_graphs=true"}, 1}};
  for (const Case& one : cases) {
    SampleRun run{.set_options = one.set_options, .ranks = one.ranks, .steps = 2, .world = {}};
    run.set_options.emplace_back("parallel.device=cuda");
    DataConfig data;
    data.reset_attention_mask =
        std::ranges::find(one.set_options, documents) != one.set_options.end();
    std::mutex mutex;
    run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
      const std::lock_guard lock(mutex);
      INFO(one.set_options.back());
      const auto stage = static_cast<int>(plan.mesh.coordinate(world.rank(), Axis::pp));
      const std::int64_t planned = feed_bytes(plan.after(1), stage, data);
      CHECK(planned > 0);
      CHECK(engine.memory().data == planned);
      CHECK(plan.stages[static_cast<std::size_t>(stage)].memory.data > planned);
    };
    train_sample(run);
  }
}
