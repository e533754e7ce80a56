// How rows get to the ranks of their experts: what a configuration switches on, calls, bytes and
// time.
#include "catch.h"
#include "plan/cost/overlap.h"
#include "sample.h"

using namespace trainctl;

namespace {

Config with_experts() {
  Config config = small_config();
  config.model.family = "llama";
  config.moe.num_experts = 4;
  config.moe.router_topk = 2;
  config.parallel.expert_parallel = 2;
  return config;
}

Config chunked(std::int64_t chunks) {
  Config config = with_experts();
  config.moe.comp_comm_parallel = true;
  config.moe.comp_comm_parallel_degree = chunks;
  return config;
}

CollectiveUse exchange_of(const Plan& plan) {
  for (const CollectiveUse& use : plan.stages.front().communication) {
    if (use.operation == GroupOperation::all_to_all) return use;
  }
  FAIL("no exchange");
  return {};
}

}  // namespace

TEST_CASE("only ranks with different experts exchange rows, in chunks if they are asked to") {
  CHECK(plan_of(with_experts(), 2).exchange.chunks == 1);
  CHECK(plan_of(chunked(3), 2).exchange.chunks == 3);
  Config alone = chunked(3);
  alone.parallel.expert_parallel = 1;
  CHECK(plan_of(alone, 2).exchange.chunks == 1);
}

TEST_CASE("chunks of rows are more calls of the same bytes, and memory stays") {
  const Plan plain = plan_of(with_experts(), 2);
  const Plan plan = plan_of(chunked(3), 2);
  CHECK(exchange_of(plan).count == 3 * exchange_of(plain).count);
  CHECK(exchange_of(plan).bytes == exchange_of(plain).bytes);
  CHECK(plan.max_memory().total() == plain.max_memory().total());
  CHECK(plan.hash != plain.hash);
}

TEST_CASE("which ranks send a share of the tokens, and which gather them") {
  Config config = with_experts();
  config.parallel.tensor_parallel = 2;
  const auto rule = [&] { return plan_of(config, 4).exchange; };
  CHECK((!rule().takes_share() && rule().parts == 1));
  config.moe.group_wise_a2a = true;
  CHECK((rule().by_slice && !rule().by_stream && rule().parts == 2));
  config.parallel.sequence_parallel = true;
  CHECK((rule().by_stream && !rule().by_slice && rule().parts == 2));
  config.moe.group_wise_a2a = false;
  CHECK((!rule().takes_share() && rule().parts == 1));
  config.parallel.expert_tensor_parallel = 1;
  CHECK((rule().by_stream && rule().parts == 1));
  config.parallel.sequence_parallel = false;
  CHECK((rule().by_slice && rule().parts == 1));
  config.parallel.tensor_parallel = 1;
  config.parallel.expert_tensor_parallel = 2;
  CHECK((!rule().takes_share() && rule().parts == 2));
  // The number of ranks is equal, but the ranks with the same experts are context-parallel.
  config.parallel.tensor_parallel = config.parallel.context_parallel = 2;
  config.parallel.expert_tensor_parallel.reset();
  CHECK((!rule().takes_share() && rule().parts == 1));
  config.parallel.rank_order = "cp-tp-ep-dp-pp";
  CHECK((rule().by_slice && rule().parts == 2));
}

TEST_CASE("shares of the tokens: rows, memory and bytes") {
  Config config = with_experts();
  config.parallel.tensor_parallel = 2;
  const Plan all = plan_of(config, 4);
  config.moe.group_wise_a2a = true;
  const Plan slices = plan_of(config, 4);
  config.parallel.sequence_parallel = true;
  const Plan shares = plan_of(config, 4);
  for (const Plan* plan : {&slices, &shares}) {
    const LocalShape local = plan->local_of(1);
    CHECK(local.routed_rows == all.local_of(1).routed_rows / 2);
    CHECK(local.expert_rows == all.local_of(1).expert_rows);  // from twice the number of ranks
    CHECK(local.received_rows == all.local_of(1).expert_rows / 2);
    CHECK(local.gathered_rows == local.expert_rows);
    CHECK(2 * exchange_of(*plan).bytes == exchange_of(all).bytes);
    CHECK(exchange_of(*plan).count == exchange_of(all).count);
    std::int64_t gathers = 0;
    for (const CollectiveUse& use : plan->stages.front().communication) {
      if (use.cargo == Cargo::part_rows) gathers += use.count;
    }
    // Rows, weights and gradients there; sums of rows, of gradients and of weights back.
    CHECK(gathers == 6 * plan->microbatches * plan->model.layers);
  }
  config.moe.comp_comm_parallel = true;
  const Plan chunks = plan_of(config, 4);
  CHECK(chunks.local_of(1).gathered_rows == shares.local_of(1).gathered_rows + 2 * 2 * 2 * 2);
}

TEST_CASE("of an exchange in chunks the first and the last are waited for") {
  CHECK(exposed_exchange(8, 2, 2, 2) == Approx(4));   // there 1 of 2, back 1 of 2
  CHECK(exposed_exchange(80, 2, 2, 4) == Approx(4));  // however long the products take
  CHECK(exposed_exchange(0, 2, 2, 2) == Approx(8));   // nothing to hide behind
  CHECK(exposed_exchange(8, 2, 0, 2) == Approx(2));   // only there
  CHECK(exposed_exchange(8, 2, 2, 1) == Approx(4));   // one chunk: all of it
  // Short products: all chunks there one after the other, then those back.
  CHECK(exposed_exchange(2, 3, 1, 2) == Approx(8 - 2));
}

TEST_CASE("the planned time has only what of the exchange is waited for") {
  const Plan plan = plan_of(chunked(2), 2);
  const Plan plain = plan_of(with_experts(), 2);
  const Rates slow{
      .matmul_flops = 1e6, .memory_bandwidth = no_time, .latency = 0, .bandwidth = 1e9};
  const Rates fast{
      .matmul_flops = no_time, .memory_bandwidth = no_time, .latency = 0, .bandwidth = 1e9};
  const auto hidden = [](const Plan& of, const Rates& rates) {
    return hidden_seconds(of, of.stages.front(), rates);
  };
  CHECK(hidden(plain, slow) == 0);
  CHECK(hidden(plan, fast) == Approx(0).margin(1e-12));
  CHECK(hidden(plan, slow) > 0);
  const auto seconds = [](const Plan& of, const Rates& rates) {
    return estimate_time(of, rates).forward_backward;
  };
  CHECK(seconds(plain, slow) - seconds(plan, slow) == Approx(hidden(plan, slow)));
  // Half of the rows there and half of those back, with as long products as one likes.
  const LocalShape local = plan.local_of(1);
  const double sent = static_cast<double>((local.routed_rows + local.expert_rows) *
                                          plan.model.hidden * size_of(plan.compute)) /
                      2 / 1e9;  // one of two ranks
  const auto passes = static_cast<double>(2 * plan.microbatches * plan.model.layers);
  CHECK(hidden(plan, slow) == Approx(passes * sent / 2));
}
