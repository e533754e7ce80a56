// The head's weight gradients at the end of a step: rows, their proof, memory and time.
#include <algorithm>

#include "base/at.h"
#include "catch.h"
#include "plan/cost/estimate.h"
#include "plan/cost/ledger.h"
#include "plan/cost/step_time.h"
#include "sample.h"

using namespace trainctl;

namespace {

/// Four micro-batches on two stages; several buckets on the last.
Config deferring(std::int64_t limit) {
  Config config = small_config();
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 1;
  config.parallel.pipeline_stages = 2;
  config.parallel.bucket_size = 200'000;
  config.parallel.gradient_accumulation_fusion = true;
  config.parallel.pipeline.defer_embedding_wgrad_compute = true;
  config.parallel.pipeline.wgrad_deferral_limit = limit;
  return config;
}

constexpr int unit_of_head = 5;

bool is_head_weight(const Action& row) {
  return row.kind == ActionKind::backward_weight && row.begin == unit_of_head;
}

}  // namespace

TEST_CASE("deferred weight gradients come after all passes, in order, before the head's sum") {
  for (const std::int64_t limit : {0, 1, 3, 9}) {
    const Plan plan = plan_of(deferring(limit), 4);
    const std::int64_t count = limit == 0 ? 4 : std::min<std::int64_t>(limit, 4);
    CHECK(plan.stages[0].deferral.microbatches == 0);
    const StagePlan& last = plan.stages[1];
    REQUIRE(last.deferral.microbatches == count);
    std::vector<int> late;
    bool over = false;  // the last B has run
    int left = 4;
    bool early_sum = false;
    for (const Action& row : last.actions) {
      const bool blocks = row.kind == ActionKind::backward_input && row.begin == 3;
      if (blocks && --left == 0) over = true;
      if (is_head_weight(row) && over && row.microbatch < count) late.push_back(row.microbatch);
      if (is_head_weight(row) && !over) CHECK(row.microbatch >= count);
      if (row.kind != ActionKind::reduce) continue;
      const bool of_head = at(last.sums, row.bucket).head >= 0;
      early_sum = early_sum || (!of_head && std::ssize(late) < count);
      if (of_head) CHECK(std::ssize(late) == count);
    }
    std::vector<int> all(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    CHECK(late == all);
    CHECK(early_sum);  // those of the blocks do not wait
  }
}

TEST_CASE("the proof finds a deferred gradient that comes too early") {
  const Plan plan = plan_of(deferring(0), 4);
  std::vector<Action> rows = plan.stages[1].actions;
  const auto first = std::find_if(rows.begin(), rows.end(), is_head_weight);
  const Action early = *first;
  rows.erase(first);
  const auto after = std::find_if(rows.begin(), rows.end(), [](const Action& row) {
    return row.kind == ActionKind::backward_input && row.begin == 3;
  });
  rows.insert(after + 1, early);
  SimulationInput input = simulation_input(plan);
  for (RankRows& rank : input.ranks) {
    if (rank.input.stage == 1) rank.rows = rows;
  }
  const auto violations = simulate(input).violations;
  REQUIRE_FALSE(violations.empty());
  CHECK(violations.front().find("before all passes are over") != std::string::npos);
}

TEST_CASE("a tied embedding on the head's stage waits for deferred gradients") {
  Config config = deferring(0);
  config.parallel.pipeline.scheduler = PipelineScheduler::zb_v;
  config.parallel.virtual_pipeline_stages = 2;
  const Plan plan = plan_of(config, 4);
  const StagePlan& rows = plan.stages[0];  // embedding and head
  int left = rows.deferral.microbatches;
  CHECK(left == 4);
  int sums = 0;
  for (const Action& row : rows.actions) {
    left -= is_head_weight(row) ? 1 : 0;
    if (row.kind != ActionKind::reduce || at(rows.sums, row.bucket).head < 0) continue;
    CHECK(left == 0);
    ++sums;
  }
  CHECK(sums > 0);
  // A sum before the last deferred gradient is found by the proof.
  std::vector<Action> early = rows.actions;
  const auto is_head_sum = [&](const Action& row) {
    return row.kind == ActionKind::reduce && at(rows.sums, row.bucket).head >= 0;
  };
  const auto sum = std::find_if(early.begin(), early.end(), is_head_sum);
  const auto weight = std::find_if(early.begin(), early.end(), is_head_weight);
  REQUIRE(weight < sum);
  std::rotate(weight, sum, sum + 1);
  SimulationInput input = simulation_input(plan);
  for (RankRows& rank : input.ranks) {
    if (rank.input.stage == 0) rank.rows = early;
  }
  const auto violations = simulate(input).violations;
  REQUIRE_FALSE(violations.empty());
  CHECK(violations.front().find("gradients of unit 5 are not final") != std::string::npos);
}

TEST_CASE("what is kept for deferred gradients is in the plan's memory") {
  const auto bytes = [](const Config& config) {
    return plan_of(config, 4).stages[1].activation_slots.bytes;
  };
  Config none = deferring(0);
  none.parallel.pipeline.defer_embedding_wgrad_compute = false;
  // A micro-batch keeps the final norm and three numbers, a label and a weight for each token.
  const std::int64_t each = 64 * 128 * 4 + 64 * 3 * 4 + 2 * 64 * 4;
  CHECK(bytes(deferring(1)) - bytes(none) <= 2 * each);
  CHECK(bytes(deferring(2)) - bytes(deferring(1)) == each);
  CHECK(bytes(deferring(0)) - bytes(deferring(2)) >= each);
  CHECK(bytes(deferring(4)) == bytes(deferring(0)));
}

TEST_CASE("a deferred gradient takes its time at the end, and that of the logits again") {
  const Rates rates{
      .matmul_flops = 1e12, .memory_bandwidth = 1e30, .latency = 0, .bandwidth = 1e30};
  Config none = deferring(0);
  none.parallel.pipeline.defer_embedding_wgrad_compute = false;
  const Plan plan = plan_of(deferring(0), 4);
  const Plan usual = plan_of(none, 4);
  const auto head_seconds = [&](const Plan& of) {
    const auto seconds = row_seconds(of, rates);
    const SimulationInput input = simulation_input(of);
    const auto rank = std::find_if(input.ranks.begin(), input.ranks.end(),
                                   [](const RankRows& one) { return one.input.stage == 1; });
    double sum = 0;
    for (const Action& row : rank->rows) sum += is_head_weight(row) ? seconds(*rank, row) : 0;
    return sum;
  };
  CHECK(head_seconds(usual) == 0);
  const double products =
      estimate_flops(plan.model, 64, {{unit_of_head, unit_of_head + 1}}).matmul / 3 /
      rates.matmul_flops;
  CHECK(head_seconds(plan) == Approx(4 * 2 * products));
  const double more = estimate_ledgers(plan, rates)[1].products;
  CHECK(more - estimate_ledgers(usual, rates)[1].products == Approx(4 * products));
}
