// Layouts as `train` runs them against a single rank, and mistakes that only such a run can make:
// without hooks, with the loader, from step to step. Each must be caught, and named where it is.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/error.h"
#include "catch.h"
#include "faulty_world.h"
#include "sample_verify.h"
#include "thorough.h"
#include "verify/free_run.h"
#include "verify/layouts.h"

using namespace trainctl;

namespace {

using enum GroupOperation;

constexpr std::int64_t noon = 2;  // the last step of the sample's day before it
constexpr std::int64_t last_step = 5;

Faults of_groups(int ranks, GroupFault fault) {
  std::vector<GroupFault> all;
  for (fault.rank = 0; fault.rank < ranks; ++fault.rank) all.push_back(fault);
  return {.world = [all](World& world) { return faulty_world(world, all); }};
}

Faults of_group(const GroupFault& fault) {
  const std::vector<GroupFault> one{fault};  // outlives the world
  return {.world = [one](World& world) { return faulty_world(world, one); }};
}

// --- what a step does

/// The last unit of every chunk that has others.
void skip_last_unit(Plan& plan) {
  for (StagePlan& stage : plan.stages) {
    for (Action& row : stage.actions) {
      if (row.kind == ActionKind::forward && row.end == stage.units.front().end &&
          row.end - row.begin > 1) {
        --row.end;
      }
    }
  }
}

void drop_weight_row(Plan& plan) {
  std::vector<Action>& rows = plan.stages.back().actions;
  rows.erase(std::find_if(rows.begin(), rows.end(), [](const Action& row) {
    return row.kind == ActionKind::backward_weight && row.begin == 4;
  }));
}

/// The row of that name comes right before the other.
void put(Plan& plan, const std::string& text, const std::string& before) {
  std::vector<Action>& actions = plan.stages.front().actions;
  const auto find = [&](const std::string& name) {
    const auto found = std::find_if(actions.begin(), actions.end(),
                                    [&](const Action& row) { return to_string(row) == name; });
    require(found != actions.end(), ExitCode::internal, "no row " + name);
    return found;
  };
  const auto from = find(text);
  const Action row = *from;
  actions.erase(from);
  actions.insert(find(before), row);
}

/// The first two buckets that are made in the same slot: one is summed only when the other is made.
void free_bucket_early(Plan& plan) {
  const auto& sums = plan.stages.front().sums;
  for (std::size_t later = 1; later < sums.size(); ++later) {
    for (std::size_t first = 0; first < later; ++first) {
      if (sums[first].slot < 0 || sums[first].slot != sums[later].slot) continue;
      return put(plan, "reduce " + std::to_string(first), "reduce " + std::to_string(later));
    }
  }
  throw Error(ExitCode::internal, "no two buckets share a slot");
}

/// The layers read of a parameter what they read in the step before.
Faults stale_copies() {
  using Copies = std::vector<std::vector<float>>;
  const auto kept = std::make_shared<std::map<int, Copies>>();
  const auto mutex = std::make_shared<std::mutex>();
  const auto loaded = [=](int rank, ParamStore& store) {
    Copies copies;
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      copies.push_back(values_of(store.resident(i)));
    }
    const std::lock_guard lock(*mutex);
    (*kept)[rank] = copies;
  };
  const auto after_step = [=](int rank, std::int64_t step, ParamStore& store) {
    if (step != 1) return;
    const std::lock_guard lock(*mutex);
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      if (store.rounded(i).empty()) continue;
      set_values(store.resident(i), kept->at(rank)[static_cast<std::size_t>(i)]);
    }
  };
  return {.parameters = after_step, .loaded = loaded};
}

/// The sums of a step begin with those of the step before.
void keep_old_sums(Plan& plan) {
  for (Action& row : plan.stages.front().actions) {
    if (row.kind == ActionKind::reduce && row.visit == 0) row.visit = 1;
  }
}

std::vector<FaultRow> step_faults() {
  return {
      {"the last unit of a forward skipped when there is no hook", small_gpt, "pp2+m2",
       of_plan(skip_last_unit), "free loss", ""},
      {"compute copies not renewed after the optimizer", with(small_gpt, in_bf16), "dp2",
       stale_copies(), "compute copy of", ""},
      {"a W row dropped", small_gpt, "pp2+zb-h1+m4", of_plan(drop_weight_row), "free gradient",
       "layers.3."},
      {"a gather one block late", small_gpt, "dp2+m2+zero3", of_plan([](Plan& plan) {
         put(plan, "wait_gather 2", "wait_gather 3");
         put(plan, "gather 2", "wait_gather 2");
       }),
       "free loss", ""},
      {"a bucket freed before its last use", small_gpt, "dp2+m2+zero2", of_plan(free_bucket_early),
       "free gradient", "layers."},
      {"sums that begin with those of the last step", small_gpt, "dp2+m2+each_sum",
       of_plan(keep_old_sums), "free gradient", "", -1, 2},
      {"a learning rate of another step",
       small_gpt,
       "dp2",
       {.config = [](int, Config& config) { config.lr_schedule.max_lr *= 3; }},
       "scalar",
       "learning_rate",
       -1,
       1},
  };
}

// --- data

std::vector<FaultRow> data_faults() {
  const auto only_own = [](int own) {
    return GroupFault{own, "scalars world", all_gather, 1, with_output([own](const Tensor& all) {
                        all.as<double>()[2 * (1 - own)] = 0;
                      })};
  };
  const std::vector<GroupFault> own{only_own(0), only_own(1)};
  return {
      {"every replica reads the data of the first", small_gpt, "dp2",
       of_order([](BatchLoader::Order& order) { order.data_rank = 0; }), "batch", "tokens", 1},
      {"a loader that begins one step later", small_gpt, "pp2",
       of_order([](BatchLoader::Order& order) { order.first_sample += order.global_batch; }),
       "batch", "tokens"},
      {"weights of one replica as the denominator",
       small_gpt,
       "dp2",
       {.world = [own](World& world) { return faulty_world(world, own); }},
       "scalar",
       "loss_factor"},
      {"an evaluation that skips the last sequence",
       small_gpt,
       "pp2",
       {.windows = [](int, std::int64_t& windows) { windows = 4; }},
       "validation loss",
       "",
       -1,
       noon},
      {"an evaluation without one replica", small_gpt, "dp2",
       of_groups(
           2, {.group = "stage", .operation = all_gather, .act = with_output([](const Tensor& all) {
                                                            all.as<double>()[2] =
                                                                all.as<double>()[3] = 0;
                                                          })}),
       "validation loss", "", -1, noon},
  };
}

// --- what ranks exchange

/// Half of a tensor's bytes, one element further than they belong.
void shift_second_half(const Tensor& all) {
  float* half = all.as<float>() + all.numel() / 2;
  std::memmove(half + 1, half, static_cast<std::size_t>(all.numel() / 2 - 1) * sizeof(float));
}

std::vector<FaultRow> exchange_faults() {
  return {
      {"a piece of a message at a wrong offset", small_gpt, "pp2+m2",
       of_group({1, "messages pp", receive, 1, with_output(shift_second_half)}), "free loss", ""},
      {"a piece of a sum at a wrong offset", small_gpt, "dp2",
       of_group({1, "gradients dp", all_reduce, 2, with_output(shift_second_half)}),
       "free gradient", "", 1},
      {"a gather that is made twice", small_gpt, "dp2+zero2",
       of_groups(2, {.group = "parameters dp", .operation = all_gather, .act = made_twice()}),
       "calls of", "all_gather 'parameters dp'"},
      {"a sum of the tied embedding left out, in the second step", small_gpt, "pp2",
       of_groups(2, {.group = "gradients embedding",
                     .operation = all_reduce,
                     .occurrence = 2,
                     .act = left_out()}),
       "free gradient", "embedding.token.weight", -1, 2},
  };
}

// --- export

/// Rank 0 takes what a stage sends for another parameter.
void swap_stages(int rank, Plan& plan) {
  if (rank != 0) return;
  const auto name_of = [](StagePlan& stage, const std::string& name) -> std::string& {
    const auto found = std::find_if(stage.parameters.begin(), stage.parameters.end(),
                                    [&](const ParamSpec& row) { return row.name == name; });
    return found->name;
  };
  std::swap(name_of(plan.stages[0], "layers.1.mlp.up.weight"),
            name_of(plan.stages[1], "layers.3.mlp.up.weight"));
}

Faults drifting_master() {
  return {.parameters = [](int rank, std::int64_t step, ParamStore& store) {
    if (rank == 1 && step == last_step) store.master(0).as<float>()[7] += 1e-4F;
  }};
}

std::vector<FaultRow> export_faults() {
  return {
      {"an export from the wrong stage",
       small_gpt,
       "pp2",
       {.exported = swap_stages},
       "exported parameter",
       "layers.1.mlp.up.weight",
       0,
       last_step},
      {"a replica that has drifted from what is exported", small_gpt, "dp2", drifting_master(),
       "owned parameter", "embedding.token.weight", 1, last_step},
  };
}

}  // namespace

TEST_CASE("layouts run freely as a single rank does") {
  const Options odd{"model.num_attention_heads=6", "model.hidden_size=48",
                    "model.ffn_hidden_size=72", "train.global_batch_size=12"};
  const std::vector<std::pair<Options, const char*>> rows = {
      // Slices that lie otherwise on the replicas of each tensor rank: all sum in the same order.
      {odd, "tp3+dp4+vocab_dp+shard2"},
      {small_gpt, "tp2sp+pp2+dp2+m2"},
      {small_gpt, "dp4+zero3+each_sum"},
      {small_llama, "tp4+dp2+vocab_dp+fusion+shard2"},
      {with(small_gpt, {"model.vocab_size=57"}), "pp2+dp2+m2+zero2+megatron"},
      {small_gpt, "pp2+m2+send_bf16"},
      {small_llama, "tp2+pp4+m8+sliced"},
      {with(small_gpt, {"parallel.gradients_mean=false"}), "tp2+dp2"},
      {with(small_gpt, {"parallel.dataset_strategy=full_batch"}), "dp2+m2"},
      {with(small_gpt, in_bf16), "tp2+pp2+zb-v+m4+recompute"},
      {with(small_gpt, in_fp16), "pp4+dp2+zero1"},
      {with(small_llama, in_fp16), "tp2sp+dp2+zero2"}};
  for (const auto& [options, layout] : some_of(rows)) {
    const LayoutVerdict verdict = run_sample_freely(options, layout);
    INFO(layout << ": " << told(verdict));
    CHECK(verdict.equal);
    CHECK_FALSE(verdict.largest.what.empty());
  }
}

TEST_CASE("mistakes in a step that only a free run makes are named") {
  check_faults(step_faults(), run_sample_freely);
}

TEST_CASE("mistakes in the order of the data and in evaluation are named") {
  check_faults(data_faults(), run_sample_freely);
}

TEST_CASE("mistakes in what ranks exchange in a free run are named") {
  check_faults(exchange_faults(), run_sample_freely);
}

TEST_CASE("mistakes in the export are named") { check_faults(export_faults(), run_sample_freely); }

TEST_CASE("where training diverges figures are compared until rounding has grown", "[threads]") {
  if (brief()) return;
  const std::filesystem::path file =
      std::filesystem::path(TRAINCTL_SOURCE_DIR) / "configs/verify-llama.yaml";
  const Config config = read_config(file, {"optimizer.type=adamw", "lr_schedule.style=constant",
                                           "optimizer.clip_grad_norm=0.1", "data.prefetch=3",
                                           "optimizer.weight_decay=0"})
                            .config;
  const Verification single(config, 1);
  const auto run = [&](const char* layout, const Faults& faults) {
    const LayoutChoice choice = parse_layouts(layout, 0).front();
    const Config own = with_layout(config, choice);
    return single.run_freely({own, plan_of(own, choice.ranks()), 20}, faults);
  };
  const LayoutVerdict right = run("tp2sp", {});
  INFO(told(right));
  CHECK(right.equal);
  const LayoutVerdict wrong = run("pp2+m2", of_plan(skip_last_unit));
  REQUIRE(wrong.first.has_value());
  CHECK(wrong.first->place() == "free loss, step 1");
}

TEST_CASE("a departure of a free run says what it was compared with", "[threads]") {
  const Faults twice =
      of_groups(2, {.group = "parameters dp", .operation = all_gather, .act = made_twice()});
  const LayoutVerdict traffic = run_sample_freely(small_gpt, "dp2+zero2", twice);
  REQUIRE(traffic.first.has_value());
  CHECK(traffic.first->place() == "calls of all_gather 'parameters dp', step 1");
  CHECK(traffic.first->beside == std::string("the plan has"));
  CHECK(traffic.first->found == traffic.first->expected + 1);
  const LayoutVerdict drifted = run_sample_freely(small_gpt, "dp2", drifting_master());
  REQUIRE(drifted.first.has_value());
  CHECK(drifted.first->place() == "owned parameter embedding.token.weight[0, 7], step 5");
  CHECK(drifted.first->beside == std::string("the export has"));
}
