// Layouts against a single rank, number by number, and mistakes that the comparison must find.
#include "engine/verify.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "catch.h"
#include "config/read.h"
#include "engine/layout_selection.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

const Options gpt{"model.num_layers=4", "model.hidden_dropout=0.1", "model.num_attention_heads=8"};
const Options llama{"model.family=llama",      "model.num_layers=4", "model.num_query_groups=2",
                    "model.qk_layernorm=true", "optimizer.type=sgd", "model.num_attention_heads=8"};

ReadResult read(const Options& options) {
  return read_config_text(sample_yaml(), "sample.yaml", options);
}

Plan plan_of(const Config& config, std::int64_t ranks) {
  Diagnostics diagnostics;
  Plan plan = make_plan(config, {.world_size = ranks, .ranks_per_host = ranks}, {}, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config, render_text(diagnostics, false));
  return plan;
}

LayoutVerdict compare(const Options& options, const std::string& layout, const Faults& faults = {},
                      double deadline = 20) {
  const Config config = read(options).config;
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  const Config own = with_layout(config, choice);
  return Verification(config, 2).compare(own, plan_of(own, choice.ranks()), deadline, faults);
}

std::string told(const LayoutVerdict& verdict) {
  return (verdict.first ? verdict.first->place() : "largest " + verdict.largest.place()) + " " +
         std::to_string(verdict.largest.error) + " " + verdict.failure;
}

/// A parameter of the stage that holds it, in every rank's own plan.
ParamSpec& row_of(Plan& plan, const std::string& name) {
  for (StagePlan& stage : plan.stages) {
    for (ParamSpec& row : stage.parameters) {
      if (row.name == name) return row;
    }
  }
  throw Error(ExitCode::internal, "no parameter " + name);
}

float& element(const Tensor& tensor, std::int64_t index) { return tensor.as<float>()[index]; }

struct FaultRow {
  std::string name;
  Options options;
  std::string layout;
  Faults faults;
  std::string what;    // of the first departure
  std::string tensor;  // a part of its name
};

Faults of_config(std::function<void(Config&)> change) {
  return {.config = [change](int rank, Config& config) {
    if (rank == 1) change(config);
  }};
}

Faults of_plan(std::function<void(Plan&)> change) {
  return {.plan = [change](int, Plan& plan) { change(plan); }};
}

Faults of_batches(std::function<void(std::vector<Batch>&)> change) {
  return {.batches = [change](int rank, std::int64_t, std::vector<Batch>& batches) {
    if (rank == 1) change(batches);
  }};
}

std::vector<FaultRow> config_faults() {
  return {
      {"another learning rate", gpt, "dp2",
       of_config([](Config& config) { config.lr_schedule.max_lr *= 1.01; }), "parameter", ""},
      {"another clip", gpt, "dp2",
       of_config([](Config& config) { config.optimizer.clip_grad_norm = 1e-3; }), "parameter", ""},
      {"another weight decay", gpt, "tp2",
       of_config([](Config& config) { config.optimizer.weight_decay = 0.5; }), "parameter", ""},
      {"another beta", gpt, "tp2", of_config([](Config& config) { config.optimizer.beta2 = 0.99; }),
       "optimizer state 2 of", ""},
      {"another seed", gpt, "pp2", of_config([](Config& config) { config.train.seed += 1; }),
       "initial parameter", ""},
      {"another optimizer momentum", llama, "dp2",
       of_config([](Config& config) { config.optimizer.momentum = 0.8; }), "parameter", ""},
      {"documents not kept apart",
       {"data.reset_attention_mask=true"},
       "dp2",
       of_config([](Config& config) { config.data.reset_attention_mask = false; }),
       "loss",
       ""},
      {"positions not reset",
       {"data.reset_position_ids=true"},
       "dp2",
       of_config([](Config& config) { config.data.reset_position_ids = false; }),
       "loss",
       ""},
  };
}

std::vector<FaultRow> plan_faults() {
  const auto tp = static_cast<std::size_t>(Axis::tp);
  return {
      {"a norm's gradient not summed over tp", gpt, "tp2sp", of_plan([tp](Plan& plan) {
         row_of(plan, "layers.1.norm1.weight").gradient_sum[tp] = false;
       }),
       "gradient", "layers.1.norm1.weight"},
      {"a gradient summed twice", gpt, "tp2+dp2",
       of_plan([tp](Plan& plan) { row_of(plan, "layers.1.norm1.weight").gradient_sum[tp] = true; }),
       "gradient", "layers.1.norm1.weight"},
      {"a bucket too short", gpt, "dp2",
       of_plan([](Plan& plan) { plan.stages[0].flat.buckets[1].length /= 2; }), "gradient", ""},
      {"decay of a norm", gpt, "dp2",
       of_plan([](Plan& plan) { row_of(plan, "final_norm.weight").decay = true; }), "parameter",
       "final_norm.weight"},
      {"another start of a matrix", gpt, "tp2",
       of_plan([](Plan& plan) { row_of(plan, "layers.0.mlp.up.weight").init_deviation *= 2; }),
       "initial parameter", "layers.0.mlp.up.weight"},
      {"ranks with the same keys take others", llama, "tp4",
       of_plan([](Plan& plan) { row_of(plan, "layers.2.attention.k.weight").tp_copies = 1; }),
       "initial parameter", "layers.2.attention.k.weight"},
  };
}

std::vector<FaultRow> batch_faults() {
  return {
      {"another dropout index", gpt, "dp2",
       of_batches([](std::vector<Batch>& batches) { ++batches[0].global_token[3]; }), "gradient",
       ""},
      {"another token", gpt, "dp2",
       of_batches([](std::vector<Batch>& batches) { batches[0].tokens[5] ^= 1; }), "loss", ""},
      {"another weight", gpt, "dp2",
       of_batches([](std::vector<Batch>& batches) { batches[0].loss_weight[0] += 1; }), "loss", ""},
      {"swapped micro-batches on one stage", gpt, "pp2+m4",
       of_batches([](std::vector<Batch>& batches) { std::swap(batches[0], batches[1]); }), "loss",
       ""},
      {"a micro-batch twice", gpt, "dp2+m2",
       of_batches([](std::vector<Batch>& batches) { batches[0] = batches[1]; }), "loss", ""},
  };
}

void check_fault(const FaultRow& row) {
  const LayoutVerdict right = compare(row.options, row.layout);
  const LayoutVerdict wrong = compare(row.options, row.layout, row.faults);
  INFO(row.name << ": " << told(wrong) << "; without: " << told(right));
  CHECK(right.equal);
  CHECK_FALSE(wrong.equal);
  REQUIRE(wrong.first.has_value());
  CHECK(wrong.first->what == row.what);
  CHECK(wrong.first->tensor.find(row.tensor) != std::string::npos);
  CHECK(wrong.first->step <= 2);
  CHECK(wrong.first->error > wrong.first->bound);
}

}  // namespace

TEST_CASE("every layout of small models equals a single rank") {
  for (const Options& options : {gpt, llama}) {
    const ReadResult result = read(options);
    const Verification verification(result.config, 2);
    for (const std::int64_t ranks : {1, 2, 4, 8}) {
      const LayoutSelection selection = select_layouts(result.config, {}, ranks, false);
      CHECK(selection.layouts.size() >= 2);
      const std::size_t stride = ranks == 8 ? 4 : 1;
      for (std::size_t i = 0; i < selection.layouts.size(); i += stride) {
        const LayoutChoice& choice = selection.layouts[i];
        const Config own = with_layout(result.config, choice);
        const LayoutVerdict verdict = verification.compare(own, plan_of(own, ranks), 20);
        INFO(options[0] << " " << choice.name() << ": " << told(verdict));
        CHECK(verdict.equal);
        CHECK_FALSE(verdict.largest.what.empty());
      }
    }
  }
}

TEST_CASE("stages that do not divide the layers, tied ends, odd sizes") {
  const Options odd{"model.num_layers=5",         "model.num_attention_heads=6",
                    "model.hidden_size=48",       "model.ffn_hidden_size=72",
                    "train.global_batch_size=12", "model.tie_word_embeddings=true"};
  for (const char* layout :
       {"pp3", "tp3+vocab_dp+pp2+dp2", "tp2sp+pp3+dp2+gpipe", "tp2sp+dp3+zero1", "tp6+vocab_dp"}) {
    const LayoutVerdict verdict = compare(odd, layout);
    INFO(layout << ": " << told(verdict));
    CHECK(verdict.equal);
  }
}

TEST_CASE("a changed element is named with rank, index and both values") {
  const Faults faults{.gradients = [](int rank, std::int64_t step, ParamStore& store) {
    if (rank != 1 || step != 2) return;
    const Tensor gradient = store.gradient(store.index_of("layers.0.mlp.up.weight"));
    element(gradient, 3) += 1;
  }};
  const LayoutVerdict verdict = compare(gpt, "tp2", faults);
  REQUIRE(verdict.first.has_value());
  const Departure& first = *verdict.first;
  CHECK(first.what == "gradient");
  CHECK(first.tensor == "layers.0.mlp.up.weight");
  CHECK(first.rank == 1);
  CHECK(first.step == 2);
  CHECK(first.index == std::vector<std::int64_t>{32, 3});  // ffn 64: rank 1 has rows 32 to 63
  CHECK(first.found == Approx(first.expected + 1));
  CHECK(first.place() == "gradient layers.0.mlp.up.weight[32, 3], step 2");
}

TEST_CASE("a value that is no number departs") {
  const Faults faults{.gradients = [](int rank, std::int64_t, ParamStore& store) {
    if (rank == 0) element(store.gradients(), 0) = std::numeric_limits<float>::quiet_NaN();
  }};
  const LayoutVerdict verdict = compare(gpt, "dp2", faults);
  REQUIRE(verdict.first.has_value());
  CHECK(verdict.first->what == "gradient");
  CHECK(verdict.first->error == std::numeric_limits<double>::infinity());
}

TEST_CASE("a replica that drifts is found after the step") {
  const Faults master{.parameters = [](int rank, std::int64_t step, ParamStore& store) {
    if (rank == 1 && step == 2) element(store.master(0), 7) += 0.01F;
  }};
  const LayoutVerdict drifted = compare(gpt, "dp2", master);
  REQUIRE(drifted.first.has_value());
  CHECK(drifted.first->place() == "parameter embedding.token.weight[0, 7], step 2");
  const Faults state{.parameters = [](int rank, std::int64_t, ParamStore& store) {
    if (rank == 1) element(store.state(0, 1), 7) += 0.01F;
  }};
  const LayoutVerdict second = compare(gpt, "dp2", state);
  REQUIRE(second.first.has_value());
  CHECK(second.first->place() == "optimizer state 2 of embedding.token.weight[0, 7], step 1");
}

TEST_CASE("mistakes in what a rank is told are caught and named") {
  for (const FaultRow& row : config_faults()) check_fault(row);
}

TEST_CASE("mistakes in the plan are caught and named") {
  for (const FaultRow& row : plan_faults()) check_fault(row);
}

TEST_CASE("mistakes in the data are caught") {
  for (const FaultRow& row : batch_faults()) check_fault(row);
}

TEST_CASE("a layout that ends early says why") {
  const Faults faults{.batches = [](int rank, std::int64_t step, std::vector<Batch>&) {
    if (rank == 1 && step == 2) throw Error(ExitCode::internal, "on purpose");
  }};
  const LayoutVerdict verdict = compare(gpt, "tp2", faults);
  CHECK_FALSE(verdict.equal);
  CHECK_FALSE(verdict.first.has_value());
  CHECK(verdict.failure == "on purpose");
}
