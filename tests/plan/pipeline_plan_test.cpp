#include <algorithm>
#include <set>

#include "base/at.h"
#include "catch.h"
#include "pipeline.h"
#include "sample.h"

using namespace trainctl;

using Scheduler = PipelineScheduler;

TEST_CASE("groups larger than the pipeline take slots early", "[pipeline]") {
  struct Peak {
    int group = 0, first_slots = 0, last_slots = 0;
  };
  for (const Peak& peak : {Peak{4, 11, 5}, Peak{6, 15, 7}, Peak{8, 19, 9}}) {
    const PipelineSizes sizes{
        .stages = 4, .chunks = 2, .microbatches = 24, .group_size = peak.group};
    const SamplePipeline pipeline(Scheduler::one_f_one_b, sizes);
    INFO("group " << peak.group);
    CHECK(peak_microbatches(pipeline.rows[0]) == peak.first_slots);
    CHECK(peak_microbatches(pipeline.rows[3]) == peak.last_slots);
  }
}

TEST_CASE("ranks that share layers and replicas prove together", "[pipeline]") {
  for (const ScheduleTraits& schedule : schedules) {
    SamplePipeline pipeline(schedule.value,
                            {.stages = 4, .chunks = 2, .microbatches = 8, .width = 2});
    for (ScheduleInput& input : pipeline.inputs) {
      if (!schedule.batches) input.messages.mode = MessageMode::single;
    }
    pipeline.replicas = 2;
    pipeline.inner = 2;
    SimulationInput input = pipeline.simulation();
    input.cost = unit_cost;
    const Simulation result = simulate(input);
    INFO(first_of(result.violations));
    CHECK(result.violations.empty());
    input.on_devices = input.hosts_meet = true;
    CHECK(first_of(simulate(input).violations).empty());
    pipeline.replicas = pipeline.inner = 1;
    input = pipeline.simulation();
    input.cost = unit_cost;
    CHECK(result.seconds == Approx(simulate(input).seconds));
    CHECK(result.bubble_fraction == Approx(simulate(input).bubble_fraction));
  }
}

TEST_CASE("a plan's rows: tied embedding, experts, tensor-parallel sums", "[pipeline]") {
  const auto rows_of = [](const Config& config, std::int64_t ranks, std::size_t stage) {
    std::string text;
    const Plan plan = plan_of(config, ranks);
    for (const Action& row : plan.stages[stage].actions) {
      if (row.bucket >= 0) text += to_string(row) + "; ";
    }
    return text;
  };
  Config config = small_config();
  config.parallel.pipeline_stages = 2;
  const Plan tied = plan_of(config, 2);
  for (const StagePlan& stage : tied.stages) {
    int found = 0;
    for (const Bucket& bucket : stage.flat.buckets) {
      const auto first = static_cast<std::size_t>(bucket.parameters.front());
      if (!stage.parameters[first].two_homes) continue;
      CHECK(bucket.parameters.size() == 1);
      ++found;
    }
    CHECK(found == 1);
  }
  const std::size_t last = tied.stages[0].flat.buckets.size() - 1;
  const std::string bucket = std::to_string(last);
  CHECK(rows_of(config, 2, 0) == "reduce_embedding " + bucket + "; wait_reduce " + bucket + "; ");
  CHECK(rows_of(config, 2, 1) == "reduce_embedding 0; wait_reduce 0; ");
  CHECK(rows_of(config, 4, 1).find("reduce 0; ") == 0);
  config.model.tie_word_embeddings = false;
  CHECK(rows_of(config, 2, 0).empty());
  // Norms under sequence parallelism are summed over tp even with one replica.
  Config tensor = small_config();
  tensor.parallel.tensor_parallel = 2;
  CHECK(rows_of(tensor, 2, 0).empty());
  tensor.parallel.sequence_parallel = true;
  CHECK(rows_of(tensor, 2, 0).find("reduce 0; ") == 0);
}

TEST_CASE("gradients that come early each have a slot", "[pipeline]") {
  Config config = small_config();
  config.train.micro_batch_size = 1;
  config.model.num_layers = 8;
  config.parallel.pipeline_stages = 4;
  config.parallel.virtual_pipeline_stages = 2;
  const auto slots = [&](std::int64_t group, std::size_t stage) {
    config.parallel.pipeline.microbatch_group_size_per_vp_stage = group;
    const Plan plan = plan_of(config, 4);
    const StagePlan& held = plan.stages[stage];
    const int row = held.declared.block(held.units[0].end - 1, false).mlp_branch.d_output.later;
    const int slot_group = at(held.activation_slots.rows, row).group;
    const std::vector<int>& taken = at(held.activation_slots.groups, slot_group).slot;
    return std::set<int>(taken.begin(), taken.end()).size();
  };
  CHECK(slots(4, 3) < slots(6, 3));
}
