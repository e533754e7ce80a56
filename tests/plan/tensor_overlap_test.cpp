// Overlap of products with collectives of tensor-parallel ranks, and weight gradients behind a
// message: what a configuration switches on, rows, calls and time.
#include <algorithm>

#include "catch.h"
#include "pipeline.h"
#include "plan/cost/ledger.h"
#include "plan/cost/overlap.h"
#include "plan/generators/generators.h"
#include "sample.h"

using namespace trainctl;

namespace {

Config overlapping() {
  Config config = small_config();
  config.parallel.tensor_parallel = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.tp_comm_overlap.enable = true;
  return config;
}

TensorOverlap overlap_of(const Config& config, std::int64_t ranks = 2) {
  return plan_of(config, ranks).overlap;
}

CollectiveUse layer_use(const Plan& plan, const std::string& name) {
  for (const CollectiveUse& use : plan.stages.front().communication) {
    if (use.name() == name) return use;
  }
  FAIL(name);
  return {};
}

/// The plan of the configuration in which nothing overlaps.
Plan blocking(Config config) {
  config.parallel.tp_comm_overlap.enable = false;
  return plan_of(config, 2);
}

}  // namespace

TEST_CASE("each sub-flag switches on its own collectives") {
  Config config = overlapping();
  TpCommOverlapConfig& said = config.parallel.tp_comm_overlap;
  const RegionOverlap usual = overlap_of(config).attention;
  CHECK((usual.gather && usual.gather_back && usual.scatter && !usual.scatter_back));
  CHECK((usual.gather_again && usual.scatter_whole && usual.weights_in_back));
  said.ag = false;
  CHECK_FALSE(overlap_of(config).mlp.gather);
  CHECK_FALSE(overlap_of(config).mlp.gather_back);
  CHECK(overlap_of(config).mlp.scatter);
  said = {.enable = true, .rs = false};
  CHECK_FALSE(overlap_of(config).mlp.scatter);
  CHECK(overlap_of(config).mlp.gather);
  said = {.enable = true, .bulk_dgrad = false};
  CHECK_FALSE(overlap_of(config).mlp.gather_again);
  CHECK((overlap_of(config).mlp.scatter_whole && overlap_of(config).mlp.weights_in_back));
  said = {.enable = true, .bulk_dgrad = false, .bulk_wgrad = false};
  CHECK_FALSE(overlap_of(config).mlp.weights_in_back);
  said.enable = false;
  CHECK_FALSE(overlap_of(config).any);
}

TEST_CASE("chunks of the input's gradient take the place of the two in one piece") {
  Config config = overlapping();
  config.parallel.tp_comm_overlap.rs_dgrad = true;
  config.parallel.tp_comm_overlap.disable_qkv = true;
  const TensorOverlap overlap = overlap_of(config);
  CHECK((overlap.mlp.scatter_back && overlap.mlp.gather));
  CHECK_FALSE((overlap.mlp.gather_again || overlap.mlp.scatter_whole));
  CHECK_FALSE(overlap.mlp.weights_in_back);
  // disable_qkv is of ag and rs_dgrad of that layer.
  CHECK_FALSE((overlap.attention.scatter_back || overlap.attention.gather));
  CHECK((overlap.attention.gather_back && overlap.attention.scatter));
  CHECK((overlap.attention.gather_again && overlap.attention.scatter_whole));
  config.parallel.tp_comm_overlap.disable_qkv = false;
  config.parallel.tp_comm_overlap.disable_fc1 = true;
  CHECK(overlap_of(config).attention.gather);
  CHECK_FALSE(overlap_of(config).mlp.gather);
}

TEST_CASE("where W comes apart, nothing overlaps the sum in one piece") {
  Config config = overlapping();
  config.parallel.pipeline_stages = 2;
  CHECK(overlap_of(config, 4).mlp.weights_in_back);
  for (const bool late : {false, true}) {
    config.parallel.delay_wgrad_compute = late;
    config.parallel.pipeline.scheduler =
        late ? PipelineScheduler::one_f_one_b : PipelineScheduler::zb_h1;
    const RegionOverlap apart = overlap_of(config, 4).mlp;
    CHECK_FALSE((apart.scatter_whole || apart.weights_in_back));
    CHECK(apart.gather_again);
  }
}

TEST_CASE("chunks are more calls of the same bytes, and memory stays") {
  for (const bool in_chunks : {false, true}) {
    Config config = overlapping();
    config.parallel.tp_comm_overlap.rs_dgrad = in_chunks;
    const Plan plan = plan_of(config, 2);
    const Plan plain = blocking(config);
    // Gathers of a layer: the input, the output's gradient, the input again; sums: the output, the
    // input's gradient.
    for (const char* name : {"all_gather attention", "all_gather mlp"}) {
      CHECK(layer_use(plain, name).count == 4 * 3);
      CHECK(layer_use(plan, name).count == 4 * (4 + 4 + 1));
      CHECK(layer_use(plan, name).bytes == layer_use(plain, name).bytes);
    }
    for (const char* name : {"reduce_scatter attention", "reduce_scatter mlp"}) {
      CHECK(layer_use(plain, name).count == 4 * 2);
      CHECK(layer_use(plan, name).count == 4 * (in_chunks ? 4 + 4 : 4 + 1));
      CHECK(layer_use(plan, name).bytes == layer_use(plain, name).bytes);
    }
    CHECK(plan.max_memory().total() == plain.max_memory().total());
    CHECK(plan.stages.front().actions == plain.stages.front().actions);
  }
}

TEST_CASE("fewer rows than chunks") {
  CHECK(row_chunks(1) == 1);
  CHECK(row_chunks(3) == 3);
  CHECK(row_chunks(96) == 4);
}

TEST_CASE("experts gather and sum in one piece") {
  Config config = overlapping();
  config.model.family = "llama";
  config.moe.num_experts = 4;
  const Plan plan = plan_of(config, 2);
  const Plan plain = blocking(config);
  std::int64_t same = 0;
  for (const CollectiveUse& use : plain.stages.front().communication) {
    if (use.cargo != Cargo::experts && use.cargo != Cargo::router) continue;
    CHECK(layer_use(plan, use.name()).count == use.count);
    ++same;
  }
  CHECK(same > 0);
  CHECK(layer_use(plan, "all_gather attention").count == 4 * 9);
}

TEST_CASE("of a chunked collective the first or the last part is waited for") {
  CHECK(exposed_scatter(8, 2, 4) == Approx(2));  // as long as the product: the last chunk
  CHECK(exposed_scatter(80, 2, 4) == Approx(2));
  CHECK(exposed_scatter(0, 2, 4) == Approx(8));  // nothing to hide behind
  CHECK(exposed_scatter(4, 2, 4) == Approx(1 + 8 - 4));
  CHECK(exposed_gather(8, 2, 4, 2) == Approx(1));   // the last chunk's product comes after it
  CHECK(exposed_gather(16, 2, 4, 2) == Approx(0));  // all has come while the own rows were made
  CHECK(exposed_gather(0, 2, 4, 2) == Approx(8));
}

TEST_CASE("the planned time has only what is waited for") {
  Config config = overlapping();
  const Plan plan = plan_of(config, 2);
  const Plan plain = blocking(config);
  // Products that take for ever hide all but the last chunk of each sum.
  const Rates slow{
      .matmul_flops = 1e6, .memory_bandwidth = no_time, .latency = 0, .bandwidth = 1e9};
  const Rates fast{
      .matmul_flops = no_time, .memory_bandwidth = no_time, .latency = 0, .bandwidth = 1e9};
  const auto seconds = [](const Plan& of, const Rates& rates) {
    return estimate_time(of, rates).forward_backward;
  };
  const double waits = hidden_seconds(plan, plan.stages.front(), slow);
  CHECK(hidden_seconds(plain, plain.stages.front(), slow) == 0);
  CHECK(hidden_seconds(plan, plan.stages.front(), fast) == Approx(0).margin(1e-12));
  CHECK(seconds(plain, slow) - seconds(plan, slow) == Approx(waits));
  CHECK(seconds(plain, fast) == Approx(seconds(plan, fast)));
  CHECK(estimate_time(plan, slow).hidden == Approx(waits));
  const double whole = estimate_ledgers(plain, slow)[0].tp;
  CHECK(whole - estimate_ledgers(plan, slow)[0].tp == Approx(waits));
  // A layer has five transfers of one size in each region; the rank waits for a quarter of one
  // transfer.
  double region = 0;
  for (const CollectiveUse& use : plain.stages.front().communication) {
    if (use.cargo == Cargo::attention || use.cargo == Cargo::mlp) region += wire_seconds(use, slow);
  }
  CHECK(waits == Approx(region * (5 - 0.25) / 5));
}

TEST_CASE("late weight gradients come behind the message of their B") {
  ScheduleInput input;
  input.stages = 2;
  input.microbatches = 2;
  input.units = {{3, 6}};
  input.late_weights = true;
  input.stage = 1;
  CHECK(texts(schedule_1f1b(input)) ==
        Texts{"fetch 0.0", "receive_forward 0.0", "F0.0[3,6)", "B0.0[3,6)", "fetch 1.0",
              "send_backward 0.0", "W0.0[3,6)", "receive_forward 1.0", "F1.0[3,6)", "B1.0[3,6)",
              "send_backward 1.0", "W1.0[3,6)", "step"});
  // The first stage sends no gradient.
  input.stage = 0;
  input.units = {{0, 3}};
  const auto late = schedule_1f1b(input);
  input.late_weights = false;
  CHECK(late == schedule_1f1b(input));
}

TEST_CASE("late weight gradients in every schedule that does not place them") {
  for (const PipelineScheduler scheduler :
       {PipelineScheduler::one_f_one_b, PipelineScheduler::gpipe}) {
    for (const int chunks : {1, 2}) {
      Config config = small_config();
      config.train.micro_batch_size = 1;
      config.parallel.pipeline_stages = 2;
      config.parallel.pipeline.scheduler = scheduler;
      config.parallel.virtual_pipeline_stages = chunks;
      config.parallel.pipeline.overlap_p2p_comm = chunks > 1;
      config.parallel.delay_wgrad_compute = true;
      const Plan plan = plan_of(config, 4);  // proven
      CHECK(plan.late_weights);
      const std::vector<Action>& rows = plan.stages[1].schedule;
      for (std::size_t i = 1; i < rows.size(); ++i) {
        const bool weight = rows[i].kind == ActionKind::backward_weight;
        if (weight) CHECK(rows[i - 1].kind != ActionKind::backward_input);
      }
    }
  }
  Config placed = small_config();
  placed.parallel.pipeline_stages = 2;
  placed.parallel.pipeline.scheduler = PipelineScheduler::zb_h1;
  placed.parallel.delay_wgrad_compute = true;
  CHECK_FALSE(plan_of(placed, 2).late_weights);
}
