// Recomputation, that is, which activations of a layer are kept and which are recomputed: words,
// rows, costs, and the forms that the plan picks for a limit.
#include <algorithm>
#include <set>

#include "base/at.h"
#include "catch.h"
#include "plan/cost/forms.h"
#include "plan/cost/step_time.h"
#include "plan/prepare/make_plan.h"
#include "sample.h"
#include "thorough.h"

using namespace trainctl;

namespace {

Config recomputed(const std::string& select) {
  Config config = small_config();
  config.train.global_batch_size = 4;
  config.train.micro_batch_size = 1;
  config.recompute.enable = true;
  config.recompute.select = select;
  return config;
}

/// Rates at which a product takes about as long as what it reads and writes.
void give_rates(Config& config) {
  config.cluster = {
      .matmul_flops = 1e12, .memory_bandwidth = 2e11, .latency = 1e-5, .bandwidth = 1e10};
}

std::set<std::string> rows_with(const StagePlan& stage, Storage storage,
                                const std::string& before) {
  std::set<std::string> names;
  for (const ActivationSpec& row : stage.activations) {
    if (row.storage == storage && row.name.starts_with(before)) {
      names.insert(row.name.substr(before.size()));
    }
  }
  return names;
}

double seconds_of(const Plan& plan, const StageForms& forms, const Rates& rates) {
  double seconds = 0;
  for (const auto& [unit, form] : forms.usual) {
    seconds += repeat_seconds(plan, unit, form, rates);
  }
  return seconds;
}

/// The least seconds of all choices of forms for two layers that fit, by trying them all.
double min_by_trial(const Plan& plan, const Config& config, std::int64_t limit) {
  const Rates rates = *given_rates(config.cluster);
  double least = 1e9;
  StagePlan laid = plan.stages.front();
  const std::int64_t others = laid.memory.total() - laid.activation_slots.bytes;
  for (int one = 0; one <= all_parts; ++one) {
    for (int two = one; two <= all_parts; ++two) {
      laid.forms = {};
      for (const auto& [unit, parts] : {std::pair(1, one), std::pair(2, two)}) {
        if (parts != 0) laid.forms.usual[unit].repeated = static_cast<std::uint8_t>(parts);
      }
      const double seconds = seconds_of(plan, laid.forms, rates);
      if (seconds >= least) continue;
      lay_out(plan, 0, move_config(config), laid);
      if (others + laid.activation_slots.bytes <= limit) least = seconds;
    }
  }
  return least;
}

}  // namespace

TEST_CASE("words of forms", "[recompute]") {
  CHECK(parse_form("full") == all_parts);
  CHECK(parse_form("none") == 0);
  CHECK(parse_form("norms") == (bit_of(BlockPart::norm1) | bit_of(BlockPart::norm2)));
  CHECK(parse_form("qkv+ attention") == (bit_of(BlockPart::qkv) | bit_of(BlockPart::attention)));
  for (const char* wrong : {"", "norm", "norms+", "+norms", "norms activations", "none+norms"}) {
    INFO(wrong);
    CHECK_FALSE(parse_form(wrong));
  }
  for (int parts = 0; parts <= all_parts; ++parts) {
    const auto bits = static_cast<std::uint8_t>(parts);
    CHECK(parse_form(form_text(bits)) == bits);
  }
  CHECK(form_text(all_parts) == "full");
  CHECK(form_text(*parse_form("activations+norm2+norm1")) == "norms+activations");
}

TEST_CASE("forms of layers", "[recompute]") {
  const LayerForms forms = parse_layer_forms("full*2, norms , none", 4);
  CHECK(forms.error.empty());
  CHECK(forms.values == std::vector<std::uint8_t>{all_parts, all_parts, *parse_form("norms"), 0});
  CHECK(parse_layer_forms("full*3", 2).error == "it has more than 2 forms");
  CHECK(parse_layer_forms("full*9999999999999", 2).error == "it has more than 2 forms");
  CHECK(parse_layer_forms("full*x", 2).error == "cannot read 'full*x'");
  CHECK(parse_layer_forms("full", 2).error == "it has 1 forms");
}

TEST_CASE("the rows that are recomputed", "[recompute]") {
  const Plan plan = plan_of(recomputed("norms+attention+activations"));
  const StagePlan& stage = plan.stages.front();
  const std::set<std::string> again{"norm1",   "norm1.mean",        "norm1.rstd",
                                    "norm2",   "norm2.mean",        "norm2.rstd",
                                    "mlp.act", "attention.context", "attention.logsumexp"};
  CHECK(rows_with(stage, Storage::repeated, "layers.0.") == again);
  CHECK(rows_with(stage, Storage::repeated, "first.layers.0.") == again);
  CHECK(rows_with(stage, Storage::forward, "layers.0.") ==
        std::set<std::string>{"attention.q", "attention.k", "attention.v", "middle", "mlp.up"});
  const auto repeats =
      std::count_if(stage.actions.begin(), stage.actions.end(),
                    [](const Action& row) { return row.kind == ActionKind::repeat; });
  CHECK(repeats == plan.model.layers * plan.microbatches);
}

TEST_CASE("what tensor-parallel ranks keep", "[recompute]") {
  Config config = recomputed("full");
  config.parallel.tensor_parallel = 2;
  config.recompute.slice_activation = true;
  const Plan sliced = plan_of(config, 2);
  CHECK(rows_with(sliced.stages[0], Storage::input, "layers.1.") ==
        std::set<std::string>{"input", "input_slice"});
  CHECK(rows_with(sliced.stages[0], Storage::repeated, "layers.1.").contains("input_again"));
  config.recompute.slice_activation = false;
  config.recompute.mp_comm_recompute = false;
  CHECK(rows_with(plan_of(config, 2).stages[0], Storage::forward, "layers.1.") ==
        std::set<std::string>{"middle"});
  config.parallel.sequence_parallel = true;
  CHECK(rows_with(plan_of(config, 2).stages[0], Storage::forward, "layers.1.") ==
        std::set<std::string>{"middle", "attention.gathered", "mlp.gathered"});
}

TEST_CASE("in each window the first micro-batches keep more", "[recompute]") {
  Config config = recomputed("full");
  config.parallel.pipeline_stages = 2;
  config.recompute.layers_per_stage = IntList{1, 0};
  config.recompute.num_microbatches_with_partial_activation_checkpoints = 1;
  const Plan plan = plan_of(config, 2);
  // Two micro-batches are in flight on the first stage, one on the second.
  const StageForms& first = plan.stages[0].forms;
  CHECK(first.is_partial == std::vector<std::vector<char>>{{1, 0, 1, 0}});
  CHECK(first.of(1, 0, 0).repeated == all_parts);
  CHECK(first.of(2, 0, 0).repeated == 0);
  CHECK(first.of(2, 0, 1).repeated == all_parts);
  CHECK(plan.stages[1].forms.is_partial == std::vector<std::vector<char>>{{1, 1, 1, 1}});
  const auto repeats_of = [](const StagePlan& stage, int m) {
    return std::count_if(stage.actions.begin(), stage.actions.end(), [m](const Action& row) {
      return row.kind == ActionKind::repeat && row.microbatch == m;
    });
  };
  CHECK(repeats_of(plan.stages[0], 0) == 1);
  CHECK(repeats_of(plan.stages[0], 1) == 2);
  CHECK(repeats_of(plan.stages[1], 1) == 0);
}

TEST_CASE("what the forms cost and save", "[recompute]") {
  Config config = recomputed("norms+activations");
  give_rates(config);
  const Plan plan = plan_of(config);
  const std::vector<RecomputeCost> costs =
      compare_forms(plan, 0, move_config(config), config.cluster);
  const auto cost_of = [&](const std::string& form) {
    const auto found = std::find_if(costs.begin(), costs.end(),
                                    [&](const RecomputeCost& cost) { return cost.form == form; });
    REQUIRE(found != costs.end());
    return *found;
  };
  const std::int64_t t = 64;  // tokens; the config has 128 features, 512 in the MLP, GPT-2
  const RecomputeCost none = cost_of("none");
  CHECK(none.flops == 0);
  CHECK(none.once == 0);
  CHECK(none.seconds == 0.0);
  const RecomputeCost norms = cost_of("norms");
  CHECK(none.kept - norms.kept == (2 * t * 128 + 4 * t) * 4);
  CHECK(norms.once == none.kept - norms.kept);
  CHECK(norms.flops == 0);
  const RecomputeCost full = cost_of("full");
  CHECK(full.kept == t * 128 * 4);
  CHECK(full.flops == 2.0 * t * 128 * (4 * 128 + 512) + 4.0 * t * 128 * 32.5);
  const RecomputeCost used = cost_of("norms+activations");
  CHECK(used.in_use);
  CHECK_FALSE(full.in_use);
  CHECK(used.rank == plan.stages[0].activation_slots.bytes);
  CHECK(*full.seconds > *used.seconds);
  CHECK(full.rank < used.rank);
  CHECK(used.rank < none.rank);
}

TEST_CASE("the forms that the plan picks are the fastest that fit", "[recompute]") {
  Config config = recomputed("full");
  config.model.num_layers = 2;
  give_rates(config);
  const Plan full = plan_of(config);
  config.recompute.enable = false;
  const Plan none = plan_of(config);
  config.recompute.enable = true;
  config.recompute.select = "auto";
  const std::int64_t most = none.max_memory().total();
  const std::int64_t least = full.max_memory().total();
  REQUIRE(most > least);
  for (const int eighths : some_of({6, 3, 0})) {
    const std::int64_t limit = least + (most - least) * eighths / 8;
    // Half a byte more than whole bytes, so that rounding does not decide.
    config.recompute.memory_limit = (static_cast<double>(limit) + 0.5) / (1 << 30);
    const Plan picked = plan_of(config);
    INFO(eighths << " eighths of the way");
    CHECK(picked.max_memory().total() <= limit);
    const double seconds = seconds_of(picked, picked.stages[0].forms, *given_rates(config.cluster));
    CHECK(seconds == Approx(min_by_trial(none, config, limit)));
  }
}

TEST_CASE("a limit below what the layers need", "[recompute]") {
  Config config = recomputed("auto");
  give_rates(config);
  config.recompute.memory_limit = 1e-3;
  Diagnostics diagnostics;
  make_plan(config, {.world_size = 1}, {}, diagnostics);
  REQUIRE(diagnostics.has_errors());
  CHECK(diagnostics.list()[0].code == "recompute-memory");
  CHECK(diagnostics.list()[0].path == "recompute.memory_limit");
  CHECK_THAT(diagnostics.list()[0].message,
             Catch::Contains("memory_limit is 1 MiB") && Catch::Contains("stage 0 needs at least"));
}
