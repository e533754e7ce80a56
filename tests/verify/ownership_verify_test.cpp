// Every way to divide optimizer state against a single rank, number by number; elements
// that a rank does not own are NaN until a step gathers them.
#include <algorithm>

#include "base/error.h"
#include "catch.h"
#include "config/read/read.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"
#include "verify/layouts.h"
#include "verify/verify.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;
using Change = std::function<void(Config&)>;

Config model_of(const Options& options) {
  Config config = read_config_text(sample_yaml(), "sample.yaml", options).config;
  return config;
}

Plan plan_of(const Config& config, std::int64_t ranks) {
  Diagnostics diagnostics;
  Plan plan = make_plan(config, {.world_size = ranks, .ranks_per_host = ranks}, {}, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config, render_text(diagnostics, false));
  return plan;
}

void shard(Config& config, std::int64_t ranks) {
  config.parallel.parallel_mode = ParallelMode::hybrid_parallel;
  config.parallel.parallel_optimizer = {.enable = true,
                                        .gradient_accumulation_shard = false,
                                        .threshold = 0,
                                        .weight_shard_size = ranks};
}

const std::vector<std::pair<std::string, Change>> ways{
    {"rows", [](Config& config) { shard(config, -1); }},
    {"rows of two", [](Config& config) { shard(config, 2); }},
    {"slices",
     [](Config& config) {
       shard(config, -1);
       config.parallel.bucket_rule = BucketRule::megatron;
     }},
    {"rows before the forward",
     [](Config& config) {
       shard(config, -1);
       config.hooks.param_sync = ParamSyncStart::before_forward;
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
                      const Change& way, const Faults& faults = {}) {
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  Config config = with_layout(model, choice);
  way(config);
  return single.compare({config, plan_of(config, choice.ranks()), 20}, faults);
}

std::string told(const LayoutVerdict& verdict) {
  return (verdict.first ? verdict.first->place() : "largest " + verdict.largest.place()) + " " +
         std::to_string(verdict.largest.error) + " " + verdict.failure;
}

const Options gpt{"model.num_layers=4", "model.hidden_dropout=0.1"};
const Options llama{"model.family=llama",
                    "model.num_layers=4",
                    "model.num_query_groups=2",
                    "optimizer.type=sgd",
                    "optimizer.momentum=0.9",
                    "model.qk_layernorm=true",
                    "optimizer.clip_grad_norm=0.01",
                    "model.num_attention_heads=8"};

}  // namespace

TEST_CASE("every way to divide the optimizer equals a single rank", "[verify]") {
  for (const Options& options : {gpt, llama}) {
    const Config model = model_of(options);
    const Verification single(model, 2);
    for (const char* layout :
         {"dp2+m2", "dp4", "tp2+dp2", "tp2sp+dp4", "tp4sp+dp2", "pp2+dp2+m2", "tp2+pp2+dp2+m2"}) {
      for (const auto& [name, way] : ways) {
        const LayoutVerdict verdict = compare(single, model, layout, way);
        INFO(options.front() << " " << layout << " " << name << ": " << told(verdict));
        CHECK(verdict.equal);
      }
    }
  }
}

TEST_CASE("a mistake in what is divided is found", "[verify]") {
  const Config model = model_of(gpt);
  const Verification single(model, 1);
  const Change& rows = ways[0].second;
  const Change& slices = ways[2].second;
  const auto no_gather = [](int, Plan& plan) {
    std::erase_if(plan.stages[0].actions, [](const Action& row) {
      return row.kind == ActionKind::gather && row.bucket == 1;
    });
  };
  for (const Change& way : {rows, slices}) {
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
    store.gradient(index).as<float>()[store.owned(index).begin] += 1;
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
