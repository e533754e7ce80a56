// Prices of models with dense layers and layers of experts: each layer by its own width, experts by
// the rows that they get, and what R sends again.
#include <algorithm>

#include "catch.h"
#include "plan/cost/communication.h"
#include "plan/cost/estimate.h"
#include "plan/cost/forms.h"
#include "plan/cost/ledger.h"
#include "plan/cost/overlap.h"
#include "plan/cost/step_time.h"
#include "sample.h"

using namespace trainctl;

namespace {

constexpr const char* wide = "norms+mlp+activations";

/// Eight layers, on `stages` stages.
Config dense(std::int64_t stages = 2) {
  Config config = small_config();
  config.model.family = "llama";
  config.model.num_layers = 8;
  config.model.hidden_size = 256;
  config.model.ffn_hidden_size = 1024;
  config.model.seq_length = 128;
  config.train.global_batch_size = 8;
  config.train.micro_batch_size = 1;
  config.parallel.pipeline_stages = stages;
  config.recompute.enable = true;
  config.cluster = {
      .matmul_flops = 1e12, .memory_bandwidth = 2e10, .latency = 1e-5, .bandwidth = 1e9};
  return config;
}

/// The dense model with experts of width 128 in the last four layers.
Config mixed(std::int64_t stages = 2) {
  Config config = dense(stages);
  config.moe.num_experts = 4;
  config.moe.router_topk = 1;
  config.moe.router_pre_softmax = true;
  config.moe.ffn_hidden_size = 128;
  config.moe.first_dense_layers = 4;
  return config;
}

/// Experts of whole width on ranks of tp, each of which sends its own tokens.
Config local_tokens() {
  Config config = dense(1);
  config.model.num_layers = 4;
  config.train.global_batch_size = 4;
  config.moe.num_experts = 4;
  config.moe.router_topk = 1;
  config.moe.router_pre_softmax = true;
  config.moe.ffn_hidden_size = 512;
  config.parallel.tensor_parallel = config.parallel.expert_parallel = 2;
  config.parallel.sequence_parallel = true;
  config.parallel.expert_tensor_parallel = 1;
  return config;
}

Rates rates_of(const Config& config) { return *given_rates(config.cluster); }

RecomputeCost row_of(const std::vector<RecomputeCost>& costs, const std::string& form,
                     bool experts) {
  const auto found = std::ranges::find_if(costs, [&](const RecomputeCost& cost) {
    return cost.form == form && cost.experts == experts;
  });
  REQUIRE(found != costs.end());
  return *found;
}

RecomputeCost row_of(const Config& config, std::int64_t ranks, const std::string& form,
                     bool experts) {
  return row_of(compare_forms(plan_of(config, ranks), 0, move_config(config), config.cluster), form,
                experts);
}

BlockForm form_of(const char* text) { return {.repeated = *parse_form(text)}; }

double seconds_of(const std::vector<CollectiveUse>& uses, const Rates& rates) {
  double seconds = 0;
  for (const CollectiveUse& use : uses) {
    if (waits_in_layers(use)) seconds += wire_seconds(use, rates);
  }
  return seconds;
}

}  // namespace

TEST_CASE("a dense layer of a mixed model costs what it costs without experts", "[mixed]") {
  for (const auto& [form, flops] : {std::pair(wide, 134'217'728.0), {"full", 209'780'736.0}}) {
    const RecomputeCost alone = row_of(dense(), 2, form, false);
    const RecomputeCost beside = row_of(mixed(), 2, form, false);
    CHECK(alone.flops == flops);
    CHECK(beside.flops == flops);
    CHECK(beside.seconds == alone.seconds);
    CHECK(beside.kept == alone.kept);
  }
  // The stage with experts: 128 tokens, 256 features, a gate, 128 inside.
  const Config config = mixed();
  const auto last = compare_forms(plan_of(config, 2), 1, move_config(config), config.cluster);
  CHECK(row_of(last, wide, true).flops == 2.0 * 128 * 256 * 2 * 128);
  CHECK(std::ranges::none_of(last, [](const RecomputeCost& cost) { return !cost.experts; }));
}

TEST_CASE("the plan picks the forms of dense layers by their own width", "[mixed]") {
  const auto forms_of = [](Config config, double limit) {
    config.model.hidden_size = 512;
    config.model.ffn_hidden_size = 8192;
    config.model.num_attention_heads = 8;
    config.model.seq_length = 1024;
    config.cluster.bandwidth = 1e10;
    config.recompute.select = "auto";
    config.recompute.memory_limit = limit;
    if (config.moe.num_experts > 1) config.moe.ffn_hidden_size = 64;
    const Plan plan = plan_of(config, 2);
    std::vector<std::string> forms;
    for (int unit = 1; unit <= 4; ++unit) {
      forms.push_back(form_text(plan.stages[0].forms.of(unit, false).repeated));
    }
    return forms;
  };
  // The messages of a mixed model take 2 MiB more.
  const auto beside = forms_of(mixed(), 1.5 + 2.0 / 1024);
  CHECK(beside == forms_of(dense(), 1.5));
  CHECK(beside == std::vector<std::string>{"norms+qkv+attention+projection+activations",
                                           "norms+qkv+attention+projection+activations",
                                           "norms+qkv+attention+projection+activations",
                                           "norms+qkv+projection+activations"});
}

TEST_CASE("layers of both kinds on one stage have prices and forms of their own", "[mixed]") {
  Config config = mixed(1);
  const Plan plan = plan_of(config);
  const auto costs = compare_forms(plan, 0, move_config(config), config.cluster);
  CHECK(costs.size() % 2 == 0);
  for (const RecomputeCost& cost : costs) {
    CHECK(cost.layers == 4);
    const RecomputeCost other = row_of(costs, cost.form, !cost.experts);
    CHECK(cost.rank == other.rank);
    CHECK(cost.on_host == other.on_host);
  }
  CHECK(row_of(costs, wide, false).flops == 2.0 * 128 * 256 * 2 * 1024);
  CHECK(row_of(costs, wide, true).flops == 2.0 * 128 * 256 * 2 * 128);
  CHECK(row_of(costs, "none", false).kept != row_of(costs, "none", true).kept);
  // Picked where one kind saves more for its time than the other.
  config.recompute.select = "auto";
  Config never = config;
  never.recompute.enable = false;
  const double most = static_cast<double>(plan_of(never).max_memory().total());
  config.recompute.memory_limit = (most - 2e6) / (1 << 30);
  const StageForms picked = plan_of(config).stages[0].forms;
  CHECK(picked.of(1, false).repeated != picked.of(8, false).repeated);
}

TEST_CASE("what R sends to experts of other ranks is in its price", "[mixed]") {
  Config config = mixed(1);
  config.parallel.data_parallel = 2;
  const Rates rates = rates_of(config);
  const RecomputeCost alone = row_of(config, 2, "full", true);
  config.parallel.expert_parallel = 2;
  const Plan plan = plan_of(config, 2);
  const RecomputeCost apart = row_of(config, 2, "full", true);
  // A gather of counts, 64 B; rows and weights, 131,584 B in two calls: half of them leave.
  const double wire = 3e-5 + (64 + 131'584) / 2 / 1e9;
  CHECK(*apart.seconds - *alone.seconds == Approx(wire));
  CHECK(row_of(config, 2, "full", false).seconds == row_of(mixed(1), 1, "full", false).seconds);
  CHECK(row_of(config, 2, "norms", true).seconds == row_of(mixed(1), 1, "norms", true).seconds);
  const RepeatPrice price = price_repeat(plan, 0, 8, form_of("full"), rates);
  CHECK(price.rows == Approx(2e-5 + 131'584 / 2 / 1e9));
  CHECK(price_repeat(plan, 0, 1, form_of("full"), rates).rows == 0);
  // In the step too, where the rows of all layers are recomputed, and in the traffic alike.
  Config without = config;
  without.recompute.enable = false;
  const Plan kept = plan_of(without, 2);
  const double more = seconds_of(plan.stages[0].communication, rates) -
                      seconds_of(kept.stages[0].communication, rates);
  CHECK(more == Approx(4 * 4 * wire));  // layers with experts, micro-batches
}

TEST_CASE("whole experts on ranks of tp work on the rows that are sent to them", "[mixed]") {
  const Config config = local_tokens();
  const RecomputeCost cost = row_of(config, 4, wide, true);
  CHECK(cost.flops == 33'554'432.0);  // 64 rows sent by each rank
  Config parts = config;
  parts.parallel.expert_tensor_parallel = 2;
  CHECK(row_of(parts, 4, wide, true).flops == 33'554'432.0);  // 128 rows, of half the width
  parts.moe.router_topk = 2;
  CHECK(row_of(parts, 4, wide, true).flops == 2 * 33'554'432.0);
}

TEST_CASE("R gathers tokens for experts where the layer does", "[mixed]") {
  Config config = local_tokens();
  const Rates rates = rates_of(config);
  const auto gathered = [&] {
    const Plan plan = plan_of(config, 4);
    BlockPasses passes;
    passes.add_repeats(form_of("mlp"), 1);
    UseList list(plan, plan.stages[0]);
    add_block(list, 1, passes);
    std::int64_t bytes = 0;
    for (const CollectiveUse& use : list.take()) {
      if (use.name() == "all_gather experts") bytes += use.bytes;
    }
    return bytes;
  };
  CHECK(gathered() == 0);
  const double own = price_repeat(plan_of(config, 4), 0, 1, form_of("mlp"), rates).waits;
  config.moe.shared_expert_intermediate_size = 64;
  CHECK(gathered() == 128 * 256 * 4);
  CHECK(price_repeat(plan_of(config, 4), 0, 1, form_of("mlp"), rates).waits ==
        Approx(own + 1e-5 + 128 * 256 * 4 / 2 / 1e9));
  config.moe.shared_expert_intermediate_size.reset();
  config.parallel.expert_tensor_parallel = 2;
  CHECK(gathered() == 128 * 256 * 4);
}

TEST_CASE("sums over parts of experts are hidden as wide as they are made", "[mixed]") {
  Config config = local_tokens();
  config.parallel.expert_tensor_parallel = 2;
  config.moe.group_wise_a2a = config.moe.comp_comm_parallel = true;
  config.precision.compute = ComputeType::bf16;
  const Rates rates{
      .matmul_flops = 1e11, .memory_bandwidth = no_time, .latency = 0, .bandwidth = 1e9};
  const auto hidden = [&](bool fp32) {
    config.parallel.force_fp32_communication = fp32;
    const Plan plan = plan_of(config, 4);
    REQUIRE(plan.exchange.parts == 2);
    REQUIRE(plan.fp32_sums == fp32);
    const double row = 256 * 2 / 2 / 1e9;  // in bf16; half of it leaves
    const auto rows = [](std::int64_t count) { return static_cast<double>(count) / 2; };
    const LocalShape local = plan.local_of(1);
    const double there = row * (rows(local.routed_rows) + rows(local.gathered_rows));
    const double back =
        row * (rows(local.received_rows) + (fp32 ? 2 : 1) * rows(local.gathered_rows));
    const double found = hidden_exchange(plan, 1, ActionKind::forward, {}, rates);
    CHECK(found == Approx(2 * (there + back) -
                          exposed_exchange(expert_products(plan, 1, true, rates), there, back, 2)));
    return found;
  };
  CHECK(hidden(true) > hidden(false));
}

TEST_CASE("the planned step has what blocks exchange, each its own", "[mixed]") {
  for (const char* select : {"none", "full"}) {
    Config config = mixed(1);
    config.parallel.data_parallel = config.parallel.expert_parallel = 2;
    config.recompute.enable = std::string(select) != "none";
    const Plan plan = plan_of(config, 2);
    // Only what blocks exchange takes time: the row times add up to the calls of the stage.
    const Rates rates{
        .matmul_flops = no_time, .memory_bandwidth = no_time, .latency = 1e-5, .bandwidth = 1e9};
    const double all = seconds_of(plan.stages[0].communication, rates);
    double sum = 0;
    double first = 0;
    const SimulationInput input = simulation_input(plan);
    const auto cost = row_seconds(plan, rates);
    for (const Action& row : plan.stages[0].actions) {
      if (!is_pass(row.kind)) continue;
      const double seconds = cost(input.ranks[0], row);
      sum += seconds;
      if (row.begin == 1 && row.end == 2) first += seconds;
    }
    CHECK(sum == Approx(all));
    CHECK(first == Approx(0).margin(1e-9));  // a dense layer of one rank sends nothing
  }
}

TEST_CASE("a ring of keys goes around again where attention is recomputed", "[mixed]") {
  Config config = dense(1);
  config.parallel.context_parallel = 2;
  config.recompute.select = "attention";
  const Rates rates{
      .matmul_flops = no_time, .memory_bandwidth = no_time, .latency = 0, .bandwidth = 1e9};
  const Plan repeated = plan_of(config, 2);
  const double wait = ring_wait(repeated, 1, rates).forward;
  REQUIRE(wait > 0);
  CHECK(price_repeat(repeated, 0, 1, form_of("attention"), rates).waits == Approx(wait));
  CHECK(price_repeat(repeated, 0, 1, form_of("norms"), rates).waits == 0);
  config.recompute.enable = false;
  const Plan once = plan_of(config, 2);
  const double repeats = 8 * 8 * wait;  // layers, micro-batches
  CHECK(estimate_ledgers(repeated, rates)[0].tp - estimate_ledgers(once, rates)[0].tp ==
        Approx(repeats));
}

TEST_CASE("context-parallel ranks gather keys again for R, and exchange heads", "[mixed]") {
  Config config = dense(1);
  config.parallel.context_parallel = 2;
  config.parallel.cp_comm_type = CpCommType::all_gather;
  const Rates rates = rates_of(config);
  const Plan plan = plan_of(config, 2);
  const double gathers = 2 * (1e-5 + 128 * 256 * 4 / 2 / 1e9);
  CHECK(price_repeat(plan, 0, 1, form_of("attention"), rates).waits == Approx(gathers));
}

TEST_CASE("every rank makes a router's scores of its whole stream", "[mixed]") {
  Config config = local_tokens();
  config.parallel.expert_tensor_parallel.reset();
  config.parallel.expert_parallel = 1;
  const auto products = [&](bool sequence) {
    config.parallel.sequence_parallel = sequence;
    return rank_flops(plan_of(config, 2), 128, 1).matmul;
  };
  CHECK(products(false) - products(true) == 6.0 * 128 * 256 * 4 / 2);
}
