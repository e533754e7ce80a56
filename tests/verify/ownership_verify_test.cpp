// Every way to divide optimizer state against a single rank, number by number; elements
// that a rank does not own are NaN until a step gathers them.
#include <algorithm>

#include "base/error.h"
#include "catch.h"
#include "config/read/read.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"
#include "sample_verify.h"
#include "thorough.h"
#include "verify/layouts.h"
#include "verify/verify.h"

using namespace trainctl;

namespace {

using WayToDivide = std::function<void(Config&)>;

Config model_of(const Options& options) {
  Config config = read_config_text(sample_yaml(), "sample.yaml", options).config;
  return config;
}

void shard(Config& config, std::int64_t ranks) {
  config.parallel.parallel_mode = ParallelMode::hybrid_parallel;
  ParallelOptimizerConfig& optimizer = config.parallel.parallel_optimizer;
  optimizer.enable = true;
  optimizer.gradient_accumulation_shard = false;
  optimizer.threshold = 0;
  optimizer.weight_shard_size = ranks;
}

void level(Config& config, OptimizerLevel level) {
  shard(config, -1);
  config.parallel.parallel_optimizer.gradient_accumulation_shard = true;
  config.parallel.parallel_optimizer.optimizer_level = level;
}

const std::vector<std::pair<std::string, WayToDivide>> ways{
    {"rows", [](Config& config) { shard(config, -1); }},
    {"rows of two", [](Config& config) { shard(config, 2); }},
    {"slices",
     [](Config& config) {
       shard(config, -1);
       config.parallel.bucket_rule = BucketRule::megatron;
     }},
    {"rows of gradients", [](Config& config) { level(config, OptimizerLevel("level2")); }},
    {"rows of weights", [](Config& config) { level(config, OptimizerLevel("level3")); }},
    {"rows of weights, two ranks a copy",
     [](Config& config) {
       level(config, OptimizerLevel("level3"));
       config.parallel.parallel_optimizer.weight_shard_size = 2;
       config.parallel.parallel_optimizer.prefetch = 0;
     }},
    {"slices of weights",
     [](Config& config) {
       level(config, OptimizerLevel("level3"));
       config.parallel.bucket_rule = BucketRule::megatron;
       config.parallel.bucket_size = 2000;
     }},
    {"sums of every micro-batch", [](Config& config) { config.hooks.no_sync = "never"; }},
    {"rows before the forward",
     [](Config& config) {
       shard(config, -1);
       config.hooks.param_sync = "before_forward";
     }},
    {"rows with dp first",
     [](Config& config) {
       shard(config, -1);
       config.parallel.rank_order = "dp-tp-cp-ep-pp";
     }},
    {"rows in fused calls",
     [](Config& config) {
       shard(config, 2);
       config.parallel.bucket_rule = BucketRule::layers;
       config.parallel.gradient_aggregation_group = 2;
     }},
};

LayoutVerdict compare(const Verification& single, const Config& model, const std::string& layout,
                      const WayToDivide& way, const Faults& faults = {}) {
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  Config config = with_layout(model, choice);
  way(config);
  return single.compare({config, plan_of(config, choice.ranks()), 20}, faults);
}

const Options divided_gpt{"model.num_layers=4", "model.hidden_dropout=0.1"};
const Options divided_llama{"model.family=llama",
                            "model.num_layers=4",
                            "model.num_query_groups=2",
                            "optimizer.type=sgd",
                            "optimizer.momentum=0.9",
                            "model.qk_layernorm=true",
                            "optimizer.clip_grad_norm=0.01",
                            "model.num_attention_heads=8"};

}  // namespace

TEST_CASE("every way to divide the optimizer equals a single rank", "[verify]") {
  int number = 0;
  for (const Options& options : {divided_gpt, divided_llama}) {
    const Config model = model_of(options);
    const Verification single(model, 2);
    for (const char* layout :
         {"dp2+m2", "dp4", "tp2+dp2", "tp2sp+dp4", "tp4sp+dp2", "pp2+dp2+m2", "tp2+pp2+dp2+m2"}) {
      for (const auto& [name, way] : ways) {
        if (number++ % stride(6) != 0) continue;  // not a divisor of the 77 pairs
        const LayoutVerdict verdict = compare(single, model, layout, way);
        INFO(options.front() << " " << layout << " " << name << ": " << told(verdict));
        CHECK(verdict.equal);
      }
    }
  }
}

TEST_CASE("weights that are not there when they are read are found", "[verify]") {
  const Config model = model_of(divided_gpt);
  const Verification single(model, 1);
  const WayToDivide rows = [](Config& config) { level(config, OptimizerLevel("level3")); };
  CHECK(compare(single, model, "dp2+m2", rows).equal);
  Config changed = with_layout(model, parse_layouts("dp2+m2", 0).front());
  rows(changed);
  const std::vector<int> slot = plan_of(changed, 2).stages[0].weight_ring.slot;
  REQUIRE(slot[1] == slot[3]);
  const auto find = [](const std::vector<Action>& actions, const std::string& text) {
    const auto found = std::find_if(actions.begin(), actions.end(),
                                    [&](const Action& row) { return to_string(row) == text; });
    return found - actions.begin();
  };
  const auto put = [&](Plan& plan, const std::string& text, const std::string& before) {
    std::vector<Action>& actions = plan.stages[0].actions;
    const Action row = actions[static_cast<std::size_t>(find(actions, text))];
    actions.erase(actions.begin() + find(actions, text));
    actions.insert(actions.begin() + find(actions, before), row);
  };
  // Block 2 comes after F of unit 2.
  const auto late = [&](int, Plan& plan) {
    put(plan, "wait_gather 2", "wait_gather 3");
    put(plan, "gather 2", "wait_gather 2");
  };
  // Block 3 comes into the slot of block 1 before F of unit 1.
  const auto early = [&](int, Plan& plan) {
    put(plan, "gather 3", "F0.0[1,2)");
    put(plan, "wait_gather 3", "F0.0[1,2)");
  };
  for (const auto& fault : {Faults{.plan = late}, Faults{.plan = early}}) {
    const LayoutVerdict verdict = compare(single, model, "dp2+m2", rows, fault);
    INFO(told(verdict));
    CHECK_FALSE(verdict.equal);
    REQUIRE(verdict.first);
    CHECK(verdict.first->what == "activation");
  }
  const auto lost = [&](int, Plan& plan) {
    std::erase_if(plan.stages[0].actions, [](const Action& row) {
      return row.kind == ActionKind::reduce && row.bucket == 1 && row.visit == 1;
    });
  };
  const LayoutVerdict sum = compare(single, model, "dp2+m2", rows, {.plan = lost});
  REQUIRE(sum.first);
  CHECK(sum.first->what == "gradient");
}

TEST_CASE("a mistake in what is divided is found", "[verify]") {
  const Config model = model_of(divided_gpt);
  const Verification single(model, 1);
  const WayToDivide& rows = ways[0].second;
  const WayToDivide& slices = ways[2].second;
  const auto no_gather = [](int, Plan& plan) {
    std::erase_if(plan.stages[0].actions, [](const Action& row) {
      return row.kind == ActionKind::gather && row.bucket == 1;
    });
  };
  for (const WayToDivide& way : {rows, slices}) {
    const LayoutVerdict verdict = compare(single, model, "dp2", way, {.plan = no_gather});
    INFO(told(verdict));
    CHECK_FALSE(verdict.equal);
  }
  const auto short_slice = [](int, Plan& plan) { plan.stages[0].flat.buckets[1].length /= 2; };
  const LayoutVerdict slice = compare(single, model, "dp2", slices, {.plan = short_slice});
  INFO(told(slice));
  CHECK_FALSE(slice.equal);
  const auto wrong_sum = [](int rank, std::int64_t, ParamStore& store) {
    if (rank != 1) return;
    const int index = store.index_of("layers.1.mlp.up.weight");
    store.owned_gradient(index).as<float>()[0] += 1;
  };
  const LayoutVerdict sum = compare(single, model, "dp2", rows, {.gradients = wrong_sum});
  REQUIRE(sum.first);
  CHECK(sum.first->what == "gradient");
  CHECK(sum.first->tensor == "layers.1.mlp.up.weight");
  CHECK(sum.first->rank == 1);
  const auto wrong_part = [](int rank, std::int64_t, ParamStore& store) {
    if (rank == 0) store.master(store.index_of("layers.0.mlp.up.weight")).as<float>()[0] += 1;
  };
  const LayoutVerdict part = compare(single, model, "dp2", rows, {.parameters = wrong_part});
  REQUIRE(part.first);
  CHECK(part.first->what == "parameter");
}
