#include "plan/cost/step_time.h"

#include "catch.h"
#include "plan/cost/estimate.h"
#include "plan/cost/overlap.h"
#include "sample.h"

using namespace trainctl;

namespace {

constexpr double never = 1e30;  // a rate so high that what it measures takes no time

TimeEstimate time_of(const Config& config, std::int64_t ranks, const Rates& rates) {
  return estimate_time(plan_of(config, ranks), rates);
}

CollectiveUse call(GroupOperation operation, std::int64_t ranks) {
  CollectiveUse use;
  use.operation = operation;
  use.ranks = ranks;
  use.count = 10;
  use.bytes = 1000;
  return use;
}

}  // namespace

TEST_CASE("calls cost rounds of a ring and the bytes that a rank sends") {
  const Rates latency{.latency = 0.5, .bandwidth = never};
  const Rates bandwidth{.latency = 0, .bandwidth = 100};
  CHECK(wire_seconds(call(GroupOperation::all_reduce, 4), latency) == Approx(10 * 6 * 0.5));
  CHECK(wire_seconds(call(GroupOperation::all_reduce, 4), bandwidth) == Approx(10 * 2 * 0.75));
  for (const GroupOperation half :
       {GroupOperation::reduce_scatter, GroupOperation::all_gather, GroupOperation::all_to_all}) {
    CHECK(wire_seconds(call(half, 4), latency) == Approx(10 * 3 * 0.5));
    CHECK(wire_seconds(call(half, 4), bandwidth) == Approx(10 * 0.75));
  }
  CHECK(wire_seconds(call(GroupOperation::broadcast, 4), bandwidth) == Approx(10));
  CHECK(wire_seconds(call(GroupOperation::send, 4), latency) == Approx(10 * 0.5));
  CHECK(wire_seconds(call(GroupOperation::send, 4), bandwidth) == Approx(10));
}

TEST_CASE("a small gather of many ranks takes one round for each doubling of the ranks") {
  const Rates latency{.latency = 0.5, .bandwidth = never};
  CHECK(wire_seconds(call(GroupOperation::all_gather, 8), latency) == Approx(10 * 7 * 0.5));
  CHECK(wire_seconds(call(GroupOperation::all_gather, 9), latency) == Approx(10 * 4 * 0.5));
  CHECK(wire_seconds(call(GroupOperation::all_gather, 16), latency) == Approx(10 * 4 * 0.5));
  CHECK(wire_seconds(call(GroupOperation::all_gather, 2304), latency) == Approx(10 * 12 * 0.5));
  CollectiveUse large = call(GroupOperation::all_gather, 16);
  large.bytes = large.count * ((64 << 10) + 1);
  CHECK(wire_seconds(large, latency) == Approx(10 * 15 * 0.5));
}

TEST_CASE("on one rank products take all operations of the step") {
  const Config config = gpt2_124m();
  const Rates rates{
      .matmul_flops = 1e12, .memory_bandwidth = never, .latency = 0, .bandwidth = never};
  const TimeEstimate time = time_of(config, 1, rates);
  CHECK(time.forward_backward == Approx(plan_of(config).flops.total() / 1e12));
  CHECK(time.exposed == 0);
  CHECK(time.optimizer == Approx(0).margin(1e-12));
  CHECK(time.step() == time.forward_backward + time.optimizer);
}

TEST_CASE("an update touches parameters, gradients and optimizer once each way") {
  const Config config = gpt2_124m();
  const MemoryEstimate memory = plan_of(config).max_memory();
  const TimeEstimate time =
      time_of(config, 1,
              {.matmul_flops = never, .memory_bandwidth = 1e9, .latency = 0, .bandwidth = never});
  CHECK(time.optimizer == Approx(2e-9 * static_cast<double>(memory.parameters + memory.gradients +
                                                            memory.optimizer)));
  // Four micro-batches' worth of kept rows, read and written five times, and the head's logits.
  CHECK(time.forward_backward > 5e-9 * static_cast<double>(memory.activations) / 4);
}

TEST_CASE("tensor parallel ranks share the work, replicas its sequences") {
  const Rates rates{
      .matmul_flops = 1e12, .memory_bandwidth = never, .latency = 0, .bandwidth = never};
  Config config = gpt2_124m();
  const double alone = time_of(config, 1, rates).forward_backward;
  CHECK(time_of(config, 2, rates).forward_backward == Approx(alone / 2));
  config.parallel.tensor_parallel = 2;
  CHECK(time_of(config, 2, rates).forward_backward == Approx(alone / 2));
  CHECK(time_of(config, 4, rates).forward_backward == Approx(alone / 4));
  config.parallel.vocab_emb_dp = true;  // every rank has the whole head
  CHECK(time_of(config, 2, rates).forward_backward > 1.1 * alone / 2);
}

TEST_CASE("calls inside layers and sums of gradients are paid for") {
  const Rates wire{
      .matmul_flops = never, .memory_bandwidth = never, .latency = 0, .bandwidth = 1e9};
  const auto seconds_of = [&](const Plan& plan, TrafficPurpose purpose) {
    double seconds = 0;
    for (const CollectiveUse& use : plan.stages.front().communication) {
      if (use.purpose == purpose) seconds += wire_seconds(use, wire);
    }
    return seconds;
  };
  Config config = gpt2_124m();
  const TimeEstimate replicas = time_of(config, 2, wire);
  const double sums = seconds_of(plan_of(config, 2), TrafficPurpose::gradients);
  CHECK(sums > 0);
  CHECK(replicas.exposed == Approx(sums));  // there is no work to hide them behind
  CHECK(replicas.forward_backward == Approx(sums));
  config.parallel.tensor_parallel = 2;
  config.parallel.sequence_parallel = true;
  const Plan plan = plan_of(config, 2);
  const double all =
      seconds_of(plan, TrafficPurpose::layers) + seconds_of(plan, TrafficPurpose::gradients);
  CHECK(time_of(config, 2, wire).forward_backward < 0.999 * all);  // sums overlap the layers
  config.hooks.grad_sync = "after_backward";
  CHECK(time_of(config, 2, wire).forward_backward == Approx(all));
}

TEST_CASE("of a ring of keys only what attention does not hide is waited for") {
  Config config = gpt2_124m();
  config.parallel.context_parallel = 2;
  const Plan plan = plan_of(config, 2);
  const auto wait = [&](double flops, double bandwidth) {
    return ring_wait(
        plan, 1,
        {.matmul_flops = flops, .memory_bandwidth = never, .latency = 0, .bandwidth = bandwidth});
  };
  const auto bytes =
      static_cast<double>(2 * plan.local.tokens * plan.local_of(1).kv * size_of(plan.compute));
  CHECK(wait(never, 1e9).forward == Approx(bytes / 1e9));
  CHECK(wait(never, 1e9).input == Approx(2 * bytes / 1e9));
  CHECK(wait(1e9, never).forward == 0);
  const std::int64_t tokens = plan.micro_batch_size * plan.model.seq_length;
  const double attention = estimate_flops(plan.model, tokens, {{1, 2}}).attention_causal / 3;
  const double one_block = attention / 2 / 2;  // of each rank's two
  CHECK(wait(one_block, bytes / 3).forward == Approx(3 - 1));
  config.parallel.cp_comm_type = CpCommType::all_gather;
  const Plan gathered = plan_of(config, 2);
  CHECK(ring_wait(gathered, 1, {1e9, never, 0, 1e9}).forward == 0);
}

TEST_CASE("stages wait for each other as the simulation says") {
  const Rates rates{
      .matmul_flops = 1e12, .memory_bandwidth = never, .latency = 0, .bandwidth = never};
  Config config = gpt2_124m();
  const double alone = time_of(config, 1, rates).forward_backward;
  config.parallel.pipeline_stages = 2;
  const TimeEstimate staged = time_of(config, 2, rates);
  CHECK(staged.bubble_fraction > 0);
  CHECK(staged.forward_backward * (1 - staged.bubble_fraction) == Approx(alone / 2));
  Rates slow = rates;
  slow.bandwidth = 1e8;
  CHECK(time_of(config, 2, slow).forward_backward > staged.forward_backward);
}

TEST_CASE("a plan has a time where the config has all rates") {
  Config config = gpt2_124m();
  CHECK_FALSE(plan_of(config).time);
  config.cluster = {
      .matmul_flops = 1e12, .memory_bandwidth = 1e11, .latency = 1e-6, .bandwidth = 1e10};
  const Plan plan = plan_of(config);
  REQUIRE(plan.time);
  CHECK(plan.time->step() == time_of(config, 1, *given_rates(config.cluster)).step());
  CHECK(plan.hash != plan_of(gpt2_124m()).hash);  // a run measures nothing then
  config.cluster.latency = 2e-6;
  CHECK(plan.hash == plan_of(config).hash);
}
