// Mistakes in updates by Muon, in groups of parameters and in the average of weights. Each must be
// caught, and named at its parameter.
#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "plan/gradients/matrix_work.h"
#include "sample_verify.h"
#include "temp_folder.h"
#include "verify/layouts.h"

using namespace trainctl;

namespace {

/// Functions, since the options of another file are not there before main begins.
Options muon() { return with(small_llama, {"optimizer.type=muon"}); }
Options routed() {
  return with(muon(), {"moe.num_experts=4", "moe.router_topk=2", "moe.ffn_hidden_size=24",
                       "moe.first_dense_layers=1"});
}

int index_of(const StagePlan& stage, const std::string& name) {
  const auto found = std::ranges::find(stage.parameters, name, &ParamSpec::name);
  return found == stage.parameters.end() ? -1 : static_cast<int>(found - stage.parameters.begin());
}

bool begins_with(const MatrixWork& work, int parameter) {
  return work.parts.front().parameter == parameter;
}

/// Changes the row of a parameter in every rank's own plan.
Faults of_row(const std::string& name, std::function<void(ParamSpec&)> change) {
  return of_plan([=](Plan& plan) {
    for (StagePlan& stage : plan.stages) {
      for (ParamSpec& row : stage.parameters) {
        if (row.name == name) change(row);
      }
    }
  });
}

/// Changes the list of work on a parameter's matrices.
Faults of_work(const std::string& name,
               std::function<void(std::vector<MatrixWork>&, int parameter)> change) {
  return of_plan([=](Plan& plan) {
    for (StagePlan& stage : plan.stages) change(stage.matrices, index_of(stage, name));
  });
}

/// Matrices are dealt as other items have them.
Faults of_items(const MuonItems& items) {
  return of_plan([=](Plan& plan) {
    MuonConfig other;
    other.items = items;
    for (StagePlan& stage : plan.stages) {
      stage.matrices =
          deal_matrices(stage.parameters, stage.shards, plan.mesh, other, plan.model.head_dim);
    }
  });
}

Faults of_muon(std::function<void(MuonConfig&)> change) {
  return {.config = [=](int, Config& config) { change(config.optimizer.muon); }};
}

/// Each tensor-parallel rank's part is a matrix of its own.
void cut_in_two(std::vector<MatrixWork>& works, int parameter) {
  for (MatrixWork& work : works) {
    if (begins_with(work, parameter)) work.matrices = 2;
  }
}

void leave_out(std::vector<MatrixWork>& works, int parameter) {
  std::erase_if(works, [=](const MatrixWork& work) { return begins_with(work, parameter); });
}

/// In a round of its own, so that a second one follows the first.
void deal_twice(std::vector<MatrixWork>& works, int parameter) {
  const auto one = std::ranges::find_if(
      works, [=](const MatrixWork& work) { return begins_with(work, parameter); });
  MatrixWork again = *one;
  for (const MatrixWork& work : works) again.round = std::max(again.round, work.round + 1);
  works.push_back(again);
}

void stack_experts(std::vector<MatrixWork>& works, int parameter) {
  MatrixWork all;
  for (const MatrixWork& work : works) {
    if (!begins_with(work, parameter)) continue;
    if (all.parts.empty()) {
      all = work;
      continue;
    }
    all.rows += work.rows;
    all.parts.push_back(work.parts.front());
  }
  leave_out(works, parameter);
  works.push_back(all);
}

std::vector<FaultRow> matrix_faults() {
  const std::string q = "layers.1.attention.q.weight";
  return {
      {"a matrix cut by shards", muon(), "tp2", of_work(q, cut_in_two), "parameter", q},
      {"a matrix dealt to none", muon(), "dp2", of_work(q, leave_out), "parameter", q},
      {"a matrix dealt twice", muon(), "dp2", of_work(q, deal_twice), "parameter", q},
      {"q, k and v as one", muon(), "tp2", of_items({{MuonItem("qkv")}}), "parameter",
       ".attention."},
      {"gate and up as one", muon(), "dp2+zero1", of_items({{MuonItem("gate_up")}}), "parameter",
       ".mlp."},
      {"each head alone", muon(), "tp2", of_items({{MuonItem("heads")}}), "parameter",
       ".attention."},
      {"experts as one", routed(), "dp2",
       of_work("layers.1.moe.experts.down.weight", stack_experts), "parameter",
       "layers.1.moe.experts.down.weight"},
      {"products in bf16 where fp32 was asked for", muon(), "dp2",
       of_plan([](Plan& plan) { plan.matrix_products = DType::bf16; }), "parameter", ".weight"},
      {"the length of another shape", with(muon(), {"optimizer.muon.scale=unit_rms"}), "dp2",
       of_muon([](MuonConfig& config) { config.scale = "shape"; }), "parameter", ".weight"},
      {"another momentum", muon(), "tp2",
       of_muon([](MuonConfig& config) { config.momentum = 0.9; }), "optimizer state 1 of",
       ".weight"},
      {"no look ahead", muon(), "tp2", of_muon([](MuonConfig& config) { config.nesterov = false; }),
       "parameter", ".weight", -1, 2},
  };
}

std::vector<FaultRow> group_faults() {
  const std::string up = "layers.1.mlp.up.weight";
  const Options groups =
      with(muon(), {"optimizer.groups=[{match: \"*.up.weight\", lr_mult: 0.5, wd_mult: 3}, "
                    "{match: \"*.mlp.*\", lr_mult: 2}]",
                    "optimizer.weight_decay=0.1"});
  return {
      {"a factor of the rate left out of the decay", groups, "dp2",
       of_row(up, [](ParamSpec& row) { row.decay_factor /= row.rate_factor; }), "parameter", up},
      {"the second entry that matches", groups, "tp2",
       of_row(up,
              [](ParamSpec& row) {
                row.rate_factor = 2;
                row.decay_factor = 1;
              }),
       "parameter", up},
  };
}

/// At the end of the first step: `change` of the value number `state` of a parameter.
Faults after_first(const std::string& name, int state, float (*change)(float)) {
  return {.parameters = [=](int, std::int64_t step, ParamStore& store) {
    const Tensor values = store.state(store.index_of(name), state);
    if (step != 1 || values.empty()) return;
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      values.as<float>()[i] = change(values.as<float>()[i]);
    }
  }};
}

std::vector<FaultRow> state_faults() {
  const std::string down = "layers.2.mlp.down.weight";
  const Options skipped =
      with(muon(), {"precision.compute=fp16", "precision.loss_scale_hysteresis=4",
                    "precision.loss_scale_backoff=0.0009765625"});
  return {
      {"a momentum that a skipped step writes", skipped, "dp2",
       after_first(down, 0, [](float) { return 1e-3F; }), "optimizer state 1 of", down},
      {"an average that stays as it was", with(muon(), {"optimizer.ema_decay=0.5"}), "tp2",
       after_first(down, 1, [](float) { return 0.0F; }), "average of", down},
      {"an average that is a little longer kept", with(small_gpt, {"optimizer.ema_decay=0.5"}),
       "dp2+zero1",
       after_first("layers.1.mlp.down.weight", 2, [](float value) { return 0.999F * value; }),
       "average of", "layers.1.mlp.down.weight"},
  };
}

}  // namespace

TEST_CASE("mistakes in what one matrix is are named") { check_faults(matrix_faults()); }

TEST_CASE("mistakes in groups are named") { check_faults(group_faults()); }

TEST_CASE("mistakes in what muon and the average keep are named") { check_faults(state_faults()); }

TEST_CASE("a rank that has no part of a matrix takes part in their exchanges") {
  const LayoutVerdict verdict = compare_sample(
      with(routed(),
           {"optimizer.type=adamw", "optimizer.groups=[{match: '*.router.weight', type: muon}]"}),
      "dp2+zero1");
  INFO(told(verdict));
  CHECK(verdict.equal);
}

TEST_CASE("a momentum that is lost at a resume is named") {
  const std::string name = "layers.0.attention.v.weight";
  const Options options = with(muon(), {"train.global_batch_size=24"});
  const Verification verification(read_sample(options).config, 4);
  const LayoutChoice from = parse_layouts("tp2", 0).front();
  const LayoutChoice to = parse_layouts("dp2+zero1", 0).front();
  const Config saves = with_layout(read_sample(options).config, from);
  const Config loads = with_layout(read_sample(options).config, to);
  const Plan saved = plan_of(saves, 2);
  const Plan loaded = plan_of(loads, 2);
  const Faults lost{.loaded = [&](int, ParamStore& store) {
    const Tensor momentum = store.state(store.index_of(name), 0);
    if (!momentum.empty()) std::fill_n(momentum.as<float>(), momentum.numel(), 0.0F);
  }};
  for (const Faults& faults : {Faults{}, lost}) {
    const TempFolder temp;
    const LayoutVerdict verdict = verification.compare_through_checkpoint(
        {saves, saved, 20}, {loads, loaded, 20}, temp.path(), faults);
    INFO(told(verdict));
    CHECK(verdict.equal == !faults.loaded);
    if (!faults.loaded) continue;
    REQUIRE(verdict.first.has_value());
    CHECK(verdict.first->what == "loaded optimizer state 1 of");
    CHECK(verdict.first->tensor == name);
  }
}
