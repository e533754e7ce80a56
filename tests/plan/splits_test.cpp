// A split for each operator: what the words say, and what follows for parameters, rows and traffic.
#include "plan/tables/splits.h"

#include <map>

#include "catch.h"
#include "plan/cost/estimate.h"
#include "sample.h"

using namespace trainctl;

namespace {

/// Two layers of llama on one group of `ranks`.
Config sample(std::int64_t ranks, bool sequence_parallel) {
  Config config = small_config();
  config.model.family = "llama";
  config.model.num_layers = 2;
  config.model.num_query_groups.reset();
  config.train.global_batch_size = 4;
  config.train.micro_batch_size = 2;
  config.parallel.parallel_mode = ParallelMode::semi_auto_parallel;
  config.parallel.tensor_parallel = ranks;
  config.parallel.sequence_parallel = sequence_parallel;
  return config;
}

Plan planned(const Config& config) { return plan_of(config, config.parallel.tensor_parallel); }

/// Calls and bytes in layers, by "operation what".
std::map<std::string, std::pair<std::int64_t, std::int64_t>> traffic(const Plan& plan) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> sums;
  for (const CollectiveUse& use : plan.stages[0].communication) {
    if (use.purpose == TrafficPurpose::layers) sums[use.name()] = {use.count, use.bytes};
  }
  return sums;
}

const ParamSpec& parameter(const Plan& plan, const std::string& name) {
  for (const ParamSpec& row : plan.stages[0].parameters) {
    if (row.name == name) return row;
  }
  FAIL("no parameter " << name);
  return plan.stages[0].parameters.front();
}

Shape row(const Plan& plan, const std::string& name) {
  for (const ActivationSpec& one : plan.stages[0].activations) {
    if (one.name == name) return one.shape;
  }
  return Shape{};
}

bool sums_over_tp(const ParamSpec& row) {
  return row.gradient_sum[static_cast<std::size_t>(Axis::tp)];
}

}  // namespace

TEST_CASE("a split for all layers or for each", "[splits]") {
  const auto read = [](const char* text) { return parse_layer_splits(text, 4); };
  CHECK(read("tokens").values == std::vector<SplitBy>(4, SplitBy::tokens));
  CHECK(read("features*2, tokens, whole").values ==
        std::vector{SplitBy::features, SplitBy::features, SplitBy::tokens, SplitBy::whole});
  CHECK(read("tokens*3").error == "it has 3 splits");
  CHECK(read("tokens*5").error == "it has more than 4 splits");
  CHECK(read("rows").error == "cannot read 'rows'");
  CHECK(read("tokens*0, whole*4").error == "cannot read 'tokens*0'");
  for (const char* text : {"whole", "features*2, tokens, whole"}) {
    CHECK(layer_splits_text(read(text).values) == text);
  }
}

TEST_CASE("operators by features are hybrid_parallel, row for row", "[splits]") {
  for (const bool sequence_parallel : {false, true}) {
    for (const bool whole_table : {false, true}) {
      Config config = sample(4, sequence_parallel);
      if (whole_table) config.parallel.vocab_emb_dp = true;
      config.parallel.operator_splits.attention = "features*2";
      config.parallel.operator_splits.feed_forward = "features";
      const Plan one = planned(config);
      config.parallel.operator_splits = {};
      config.parallel.parallel_mode = ParallelMode::hybrid_parallel;
      const Plan other = planned(config);
      const StagePlan& a = one.stages[0];
      const StagePlan& b = other.stages[0];
      REQUIRE(a.activations.size() == b.activations.size());
      for (std::size_t i = 0; i < a.activations.size(); ++i) {
        CHECK(a.activations[i].name == b.activations[i].name);
        CHECK(a.activations[i].shape == b.activations[i].shape);
        CHECK(a.activations[i].from == b.activations[i].from);
        CHECK(a.activations[i].until == b.activations[i].until);
      }
      REQUIRE(a.parameters.size() == b.parameters.size());
      for (std::size_t i = 0; i < a.parameters.size(); ++i) {
        CHECK(a.parameters[i].shape == b.parameters[i].shape);
        CHECK(a.parameters[i].gradient_sum == b.parameters[i].gradient_sum);
      }
      CHECK(traffic(one) == traffic(other));
      CHECK(a.memory.total() == b.memory.total());
    }
  }
}

TEST_CASE("weights of an operator by tokens are whole, their gradients summed", "[splits]") {
  for (const bool sequence_parallel : {false, true}) {
    Config config = sample(4, sequence_parallel);
    config.parallel.operator_splits.attention = "tokens, whole";
    config.parallel.operator_splits.feed_forward = "whole, tokens";
    const Plan plan = planned(config);
    for (const char* name : {"layers.0.attention.q.weight", "layers.0.attention.out.weight",
                             "layers.1.mlp.up.weight", "layers.1.mlp.down.weight"}) {
      CHECK(parameter(plan, name).shape == parameter(plan, name).global_shape);
      CHECK(sums_over_tp(parameter(plan, name)));
    }
    for (const char* name : {"layers.1.attention.q.weight", "layers.0.mlp.down.weight"}) {
      CHECK(parameter(plan, name).shape == parameter(plan, name).global_shape);
      CHECK_FALSE(sums_over_tp(parameter(plan, name)));
    }
    // 128 tokens of 128 features, 4 heads of 32; 512 inside the MLP.
    CHECK(row(plan, "layers.0.attention.q") == Shape{128, 32});
    CHECK(row(plan, "layers.0.attention.context") == Shape{32, 128});
    CHECK(row(plan, "layers.1.attention.q") == Shape{128, 128});
    CHECK(row(plan, "layers.0.mlp.up").numel() == 4 * row(plan, "layers.1.mlp.up").numel());
    CHECK(row(plan, "layers.1.mlp.up")[0] == 32);
  }
}

TEST_CASE("collectives follow from the two sides", "[splits]") {
  using Uses = std::map<std::string, std::pair<std::int64_t, std::int64_t>>;
  const std::int64_t stream = 128 * 128 * 4;  // bytes of [T,H]
  const auto uses = [&](bool sequence_parallel, const char* split) {
    Config config = sample(4, sequence_parallel);
    config.parallel.operator_splits.feed_forward = split;
    Uses mlp;
    for (const auto& [name, sums] : traffic(planned(config))) {
      if (name.ends_with(" mlp")) mlp[name] = sums;
    }
    return mlp;
  };
  const auto calls = [&](std::int64_t count) { return std::pair(count, count * stream); };
  // Two layers and two micro-batches: 4 passes.
  CHECK(uses(true, "tokens") == Uses{});
  CHECK(uses(true, "whole") == Uses{{"all_gather mlp", calls(12)}});
  CHECK(uses(true, "features") ==
        Uses{{"all_gather mlp", calls(12)}, {"reduce_scatter mlp", calls(8)}});
  CHECK(uses(false, "tokens") == Uses{{"all_gather mlp", calls(8)}});
  CHECK(uses(false, "whole") == Uses{});
  CHECK(uses(false, "features") == Uses{{"all_reduce mlp", calls(8)}});
  CHECK(uses(false, "features, tokens") ==
        Uses{{"all_reduce mlp", calls(4)}, {"all_gather mlp", calls(4)}});
}

TEST_CASE("tokens go to heads by all-to-all or by gathers", "[splits]") {
  Config config = sample(4, true);
  config.parallel.operator_splits.attention = "tokens";
  // q, k, v and the result, there and back in both passes: 8 tensors a pass, each 32 x 128 here.
  const std::int64_t each = 32 * 128 * 4;
  const Plan gathered = planned(config);
  CHECK(traffic(gathered).at("all_gather heads") ==
        std::pair<std::int64_t, std::int64_t>{32, 32 * 4 * each});
  config.parallel.enable_alltoall = true;
  const Plan at_once = planned(config);
  CHECK(traffic(at_once).at("all_to_all heads") ==
        std::pair<std::int64_t, std::int64_t>{32, 32 * each});
  CHECK(row(gathered, "heads.packed").numel() == 4 * row(at_once, "heads.packed").numel());
  CHECK(gathered.hash != at_once.hash);
}

TEST_CASE("an operator that is whole takes each rank all of its time", "[splits]") {
  Config config = sample(4, true);
  const auto flops = [&](const char* attention, const char* mlp) {
    config.parallel.operator_splits.attention = attention;
    config.parallel.operator_splits.feed_forward = mlp;
    return rank_flops(planned(config), 128, 1);
  };
  const FlopsEstimate all = estimate_flops(planned(config).model, 128, {{1, 2}});
  CHECK(flops("features", "features").matmul == all.matmul / 4);
  CHECK(flops("tokens", "tokens").matmul == all.matmul / 4);
  CHECK(flops("whole", "whole").matmul == Approx(all.matmul));
  CHECK(flops("whole", "tokens").attention_causal == Approx(all.attention_causal));
  CHECK(flops("features", "whole").matmul > all.matmul / 4);
  CHECK(flops("features", "whole").matmul < all.matmul);
}
