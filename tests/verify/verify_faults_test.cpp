// Mistakes in what a rank is told: its options, its plan, its data, its parameters. Each must be
// caught, and named where it is.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "catch.h"
#include "sample_verify.h"

using namespace trainctl;

namespace {

/// A parameter of the stage that holds it, in every rank's own plan.
ParamSpec& row_of(Plan& plan, const std::string& name) {
  for (StagePlan& stage : plan.stages) {
    for (ParamSpec& row : stage.parameters) {
      if (row.name == name) return row;
    }
  }
  throw Error(ExitCode::internal, "no parameter " + name);
}

Faults of_config(std::function<void(Config&)> change) {
  return {.config = [change](int rank, Config& config) {
    if (rank == 1) change(config);
  }};
}

Faults of_batches(std::function<void(std::vector<Batch>&)> change) {
  return {.batches = [change](int rank, std::int64_t, std::vector<Batch>& batches) {
    if (rank == 1) change(batches);
  }};
}

Options bf16_alone() {
  return with(small_gpt, {"precision.compute=bf16", "optimizer.main_params_dtype=bf16"});
}

std::vector<FaultRow> config_faults() {
  return {
      {"another learning rate", small_gpt, "dp2",
       of_config([](Config& config) { config.lr_schedule.max_lr *= 1.01; }), "scalar",
       "learning_rate"},
      {"another learning rate of matrices in bf16", bf16_alone(), "dp2",
       of_config([](Config& config) { config.lr_schedule.max_lr *= 1.01; }), "scalar",
       "learning_rate"},
      {"another clip", small_gpt, "dp2",
       of_config([](Config& config) { config.optimizer.clip_grad_norm = 1e-3; }), "scalar",
       "clip_coefficient"},
      {"another weight decay", small_gpt, "tp2",
       of_config([](Config& config) { config.optimizer.weight_decay = 0.5; }), "scalar",
       "weight_decay"},
      {"another beta", small_gpt, "tp2",
       of_config([](Config& config) { config.optimizer.beta2 = 0.99; }), "scalar",
       "bias_correction2"},
      {"another seed", small_gpt, "pp2", of_config([](Config& config) { config.train.seed += 1; }),
       "initial parameter", ""},
      {"another optimizer momentum", small_llama, "dp2",
       of_config([](Config& config) { config.optimizer.momentum = 0.8; }), "parameter", "", 1, 2},
      {"documents not kept apart",
       {"data.reset_attention_mask=true"},
       "dp2",
       of_config([](Config& config) { config.data.reset_attention_mask = false; }),
       "activation",
       "layers.0",
       1},
      {"positions not reset",
       {"data.reset_position_ids=true"},
       "dp2",
       of_config([](Config& config) { config.data.reset_position_ids = false; }),
       "activation",
       "embedding",
       1},
  };
}

std::vector<FaultRow> plan_faults() {
  const auto tp = static_cast<std::size_t>(Axis::tp);
  return {
      {"a norm's gradient not summed over tp", small_gpt, "tp2sp", of_plan([tp](Plan& plan) {
         row_of(plan, "layers.1.norm1.weight").gradient_sum[tp] = false;
       }),
       "gradient", "layers.1.norm1.weight"},
      {"a gradient summed twice", small_gpt, "tp2+dp2",
       of_plan([tp](Plan& plan) { row_of(plan, "layers.1.norm1.weight").gradient_sum[tp] = true; }),
       "gradient", "layers.1.norm1.weight"},
      {"a bucket too short", small_gpt, "dp2",
       of_plan([](Plan& plan) { plan.stages[0].flat.buckets[1].length /= 2; }), "gradient", ""},
      {"decay of a norm", small_gpt, "dp2",
       of_plan([](Plan& plan) { row_of(plan, "final_norm.weight").decay = true; }), "parameter",
       "final_norm.weight"},
      {"another start of a matrix", small_gpt, "tp2",
       of_plan([](Plan& plan) { row_of(plan, "layers.0.mlp.up.weight").init_deviation *= 2; }),
       "initial parameter", "layers.0.mlp.up.weight"},
      {"ranks with the same keys take others", small_llama, "tp4",
       of_plan([](Plan& plan) { row_of(plan, "layers.2.attention.k.weight").tp_copies = 1; }),
       "initial parameter", "layers.2.attention.k.weight"},
  };
}

Action& row_of(Plan& plan, ActionKind kind, int unit) {
  for (StagePlan& stage : plan.stages) {
    for (Action& row : stage.actions) {
      if (row.kind == kind && row.begin == unit) return row;
    }
  }
  throw Error(ExitCode::internal, "no such row");
}

/// Rows of which `ends` holds are given up after `until`.
template <class Ends>
void end_rows(Plan& plan, Moment until, const Ends& ends) {
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    StagePlan& rows = plan.stages[static_cast<std::size_t>(stage)];
    for (ActivationSpec& row : rows.activations) {
      if (ends(row)) row.until = until;
    }
    rows.activation_slots =
        assign_slots(rows.activations, rows.actions, schedule_input(plan, stage));
  }
}

/// Activations that W reads are given up after B.
void free_early(Plan& plan) {
  end_rows(plan, Moment::backward,
           [](const ActivationSpec& row) { return row.until == Moment::weight; });
}

std::vector<FaultRow> schedule_faults() {
  const auto set_unit = [](ActionKind kind, int unit, int other) {
    return of_plan([=](Plan& plan) {
      Action& row = row_of(plan, kind, unit);
      row.begin = other;
      row.end = other + 1;
    });
  };
  return {
      {"a weight gradient left out, another made twice", small_gpt, "dp2",
       set_unit(ActionKind::backward_weight, 2, 3), "gradient", "layers.2."},
      {"the weight gradient of another micro-batch", small_gpt, "pp2+gpipe+m2",
       of_plan([](Plan& plan) { row_of(plan, ActionKind::backward_weight, 4).microbatch = 1; }),
       "gradient", "layers.3."},
      {"a delayed weight gradient left out", small_gpt, "pp2+zb-h1+m4", of_plan([](Plan& plan) {
         std::vector<Action>& rows = plan.stages.back().actions;
         rows.erase(std::find_if(rows.begin(), rows.end(), [](const Action& row) {
           return row.kind == ActionKind::backward_weight && row.begin == 4;
         }));
       }),
       "gradient", "layers.3.", 1},
      {"activations that make place before their last use", small_gpt, "pp2+zb-h1+m4",
       of_plan(free_early), "gradient", "layers.3."},
      {"a layer recomputed into another's place", small_gpt, "pp2+recompute+m4",
       of_plan([](Plan& plan) { row_of(plan, ActionKind::repeat, 2).microbatch = 1; }), "gradient",
       "layers.1."},
      {"a repeat left out", small_gpt, "pp2+selective+m4", of_plan([](Plan& plan) {
         std::vector<Action>& rows = plan.stages.back().actions;
         rows.erase(std::find_if(rows.begin(), rows.end(), [](const Action& row) {
           return row.kind == ActionKind::repeat && row.begin == 3;
         }));
       }),
       "gradient", "layers.2."},
      {"a part that is not recomputed", small_gpt, "pp2+selective+m4", of_plan([](Plan& plan) {
         plan.stages.back().forms.usual.at(3).repeated &=
             static_cast<std::uint8_t>(~bit_of(BlockPart::activation));
       }),
       "gradient", "layers.2.mlp.down.weight"},
      {"a layer that is brought back from another's place", small_gpt, "pp2+offload+m4",
       of_plan([](Plan& plan) {
         for (const ActionKind kind : {ActionKind::reload, ActionKind::wait_reload}) {
           Action& row = row_of(plan, kind, 2);
           row.begin = 1;
           row.end = 2;
         }
       }),
       "gradient", "layers.1."},
      {"a layer of another micro-batch brought back", small_gpt, "pp2+gpipe+offload+m2",
       of_plan([](Plan& plan) {
         for (const ActionKind kind : {ActionKind::reload, ActionKind::wait_reload}) {
           Action& row = row_of(plan, kind, 2);
           row.microbatch = 1 - row.microbatch;
         }
       }),
       "gradient", "layers.1."},
      {"a layer that is not brought back", small_gpt, "tp2+offload2", of_plan([](Plan& plan) {
         std::vector<Action>& rows = plan.stages.front().actions;
         std::erase_if(rows, [](const Action& row) {
           return row.kind == ActionKind::reload && row.begin == 2;
         });
       }),
       "gradient", "layers.1."},
      {"a place on the host given up before the copy back", small_gpt, "dp2+offload",
       of_plan([](Plan& plan) {
         end_rows(plan, Moment::offload,
                  [](const ActivationSpec& row) { return row.storage == Storage::host; });
       }),
       "gradient", "layers."},
      {"moments rounded with other random bits: a third of them to the other neighbour",
       with(small_llama, {"optimizer.type=adamw", "optimizer.exp_avg_sq_dtype=bf16"}),
       "tp2",
       {.parameters =
            [](int rank, std::int64_t, ParamStore& store) {
              const Tensor moments = store.state(2, 1);
              for (std::int64_t i = 0; rank == 1 && i < moments.numel(); i += 3) {
                moments.as<bf16>()[i].bits ^= 1;
              }
            }},
       "optimizer state 2 of",
       "",
       1},
      {"a matrix in bf16 rounded with other random bits: a tenth of it to the other neighbour",
       bf16_alone(),
       "tp2",
       {.parameters =
            [](int rank, std::int64_t, ParamStore& store) {
              const Tensor matrix = store.master(0);
              for (std::int64_t i = 0; rank == 1 && i < matrix.numel(); i += 10) {
                matrix.as<bf16>()[i].bits ^= 1;
              }
            }},
       "parameter",
       "",
       1},
      {"weights that are not brought back", with(small_gpt, in_bf16), "dp2+offloadw",
       of_plan([](Plan& plan) {
         std::vector<Action>& rows = plan.stages.front().actions;
         std::erase_if(rows, [](const Action& row) {
           return row.kind == ActionKind::gather && row.bucket == 1 && row.visit == 1;
         });
       }),
       "gradient", "layers."},
      {"a share of an input given up before it is gathered", small_gpt, "tp2+sliced",
       of_plan([](Plan& plan) {
         end_rows(plan, Moment::forward,
                  [](const ActivationSpec& row) { return row.name.ends_with(".input_slice"); });
       }),
       "gradient", "layers."},
      {"a gathered input given up after F", small_gpt, "tp2sp+kept_sums", of_plan([](Plan& plan) {
         end_rows(plan, Moment::forward, [](const ActivationSpec& row) {
           return row.name.ends_with(".gathered") && row.unit > 0;
         });
       }),
       "gradient", "layers."},
      {"a micro-batch that keeps more is taken for another", small_gpt, "pp2+partial+m4",
       of_plan([](Plan& plan) {
         std::vector<Action>& rows = plan.stages.front().actions;
         for (Action& row : rows) {
           if (row.kind == ActionKind::repeat) row.microbatch = 0;
         }
       }),
       "gradient", "layers.0."},
      {"a stage takes its micro-batches in another order", small_gpt, "pp2+gpipe+m2",
       of_plan([](Plan& plan) {
         for (Action& row : plan.stages.back().actions) {
           if (row.kind == ActionKind::fetch) row.microbatch = 1 - row.microbatch;
         }
       }),
       "activation", "layers.2", 1},
  };
}

std::vector<FaultRow> batch_faults() {
  return {
      {"another dropout index", small_gpt, "dp2",
       of_batches([](std::vector<Batch>& batches) { ++batches[0].global_token[3]; }), "activation",
       "layers.0", 1},
      {"another token", small_gpt, "dp2",
       of_batches([](std::vector<Batch>& batches) { batches[0].tokens[5] ^= 1; }), "activation",
       "embedding", 1},
      {"another weight", small_gpt, "dp2",
       of_batches([](std::vector<Batch>& batches) { batches[0].loss_weight[0] += 1; }), "loss", ""},
      {"swapped micro-batches on one stage", small_gpt, "pp2+m4",
       of_batches([](std::vector<Batch>& batches) { std::swap(batches[0], batches[1]); }),
       "activation", "layers.2", 1},
      {"a micro-batch twice", small_gpt, "dp2+m2",
       of_batches([](std::vector<Batch>& batches) { batches[0] = batches[1]; }), "activation",
       "embedding", 1},
  };
}

}  // namespace

TEST_CASE("mistakes in what a rank is told are caught and named") {
  for (const FaultRow& row : config_faults()) check_fault(row);
}

TEST_CASE("mistakes in the plan are caught and named") {
  for (const FaultRow& row : plan_faults()) check_fault(row);
}

TEST_CASE("mistakes in the schedule are caught and named") {
  for (const FaultRow& row : schedule_faults()) check_fault(row);
}

TEST_CASE("what goes to another chunk than the one that waits for it is named") {
  const auto faults = of_plan([](Plan& plan) {
    for (Action& row : plan.stages.back().actions) {
      if (row.kind == ActionKind::receive_forward) row.chunk = 1 - row.chunk;
    }
  });
  const LayoutVerdict verdict = compare_sample(small_gpt, "pp2+gpipe+vp2+m2", faults, 2);
  INFO(told(verdict));
  CHECK_FALSE(verdict.equal);
  CHECK(verdict.failure.find("messages pp") != std::string::npos);
}

TEST_CASE("mistakes in the data are caught and named") {
  for (const FaultRow& row : batch_faults()) check_fault(row);
}
