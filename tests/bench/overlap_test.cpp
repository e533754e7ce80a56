// The measurement of hidden communication: what it finds on wires so slow that the machine's noise
// does not decide, and what it plays from times that are given.
#include "bench/overlap.h"

#include <algorithm>

#include "catch.h"
#include "config/read/read.h"
#include "sample_run.h"
#include "thorough.h"

using namespace trainctl;

namespace {

Config sample_config(const std::vector<std::string>& more) {
  ReadResult read = read_config_text(sample_yaml(), "sample.yaml", more);
  REQUIRE_FALSE(read.diagnostics.has_errors());
  return read.config;
}

/// Steps of two stages whose every pass takes what `times` says.
std::vector<TimedStep> made_up(const Plan& plan, const UnitTimes& times) {
  TimedStep step;
  for (const StagePlan& stage : plan.stages) {
    auto& records = step.rows.emplace_back();
    for (const Action& row : stage.actions) {
      const double waited = 0.25;
      const double worked = is_pass(row.kind) ? times.of(row, plan.model.layers) : 0;
      records.push_back({1, 1 + waited + worked, waited});
    }
  }
  return {step, step, step};
}

const std::vector<std::string> layers4{"model.num_layers=4"};

/// Under a sanitizer the code runs once, and its times say nothing.
std::vector<std::string> narrow(std::vector<std::string> more) {
  return with(std::move(more), {"model.hidden_size=64", "model.seq_length=64"});
}
/// Widths of layers whose products take long enough to be timed.
std::vector<std::string> wide_layers(std::vector<std::string> more) {
  return watched() ? narrow(std::move(more)) : with(std::move(more), {"model.hidden_size=256"});
}
std::vector<std::string> wide_experts(std::vector<std::string> more) {
  more.push_back(watched() ? "moe.ffn_hidden_size=128" : "moe.ffn_hidden_size=512");
  return wide_layers(std::move(more));
}

/// How many times a ratio may be measured until other work on the machine leaves it alone.
int attempts() { return watched() ? 1 : 3; }

}  // namespace

TEST_CASE("a wire is as slow as it was asked for") {
  const OverlapResult found =
      measure_overlap(sample_config({"model.hidden_size=64", "model.seq_length=64"}), 1, 3, 1.0);
  CHECK(found.work_seconds > 0);
  CHECK(found.wire.wire_beta_seconds_per_byte >= 0);
  CHECK(found.blocking_exposed_seconds > 0.1 * found.work_seconds);
  CHECK(found.overlapped_exposed_seconds >= 0);
  CHECK(found.overlapped_step_seconds > 0);
  CHECK(found.blocking_step_seconds > found.blocking_exposed_seconds);
}

TEST_CASE("a measured bubble is near that of the simulation on a slow wire", "[threads]") {
  // Messages of 4 ms outweigh the work: nearly all is waiting.
  const BubbleResult found = measure_bubble(sample_config({}), 4, {.wire_alpha_seconds = 4e-3}, 3);
  CHECK(found.microbatches == 4);
  CHECK(found.steps.size() == 3);
  CHECK(found.simulated > 0.1);
  CHECK(found.ratio > 0.5);
  CHECK(found.ratio < 2);
}

TEST_CASE("the cost of collectives in layers, waited for and during products") {
  // Transfers so long that the machine's noise does not decide; most products take as long.
  LayerOverlapInput input = tensor_overlap(
      sample_config(wide_layers({"model.ffn_hidden_size=2048", "model.seq_length=512",
                                 "model.num_layers=2", "train.global_batch_size=2"})));
  input.share = 2.0;
  input.rounds = 1;
  input.steps = 3;
  double least = 1;  // other work on the machine adds to what products hide
  for (int attempt = 0; attempt < attempts() && least > 0.9; ++attempt) {
    const OverlapResult found = measure_layer_overlap(input);
    CHECK(found.work_seconds > 0);
    // Ten transfers in each layer.
    CHECK(found.blocking_exposed_seconds > 0.8 * 10 * 2 * 2 * found.work_seconds);
    CHECK(found.overlapped_step_seconds > 0);
    CHECK(found.blocking_step_seconds > found.blocking_exposed_seconds);
    least = std::min(least, found.ratio());
  }
  CHECK((least <= 0.9 || watched()));
}

TEST_CASE("what keys and values cost, gathered and on their way around a ring") {
  const std::vector<std::string> options{"model.hidden_size=128", "model.num_attention_heads=4",
                                         "model.seq_length=1024", "model.num_layers=2",
                                         "train.global_batch_size=1"};
  LayerOverlapInput input = context_overlap(sample_config(watched() ? narrow(options) : options));
  CHECK(input.overlapped.parallel.cp_comm_type == CpCommTypes(CpCommType::p2p));
  input.rounds = 1;
  input.steps = 3;
  const OverlapResult found = measure_layer_overlap(input);
  CHECK(found.work_seconds > 0);
  // Once in each layer. The test engine/ring_test.cpp counts that a ring overlaps them with
  // attention.
  CHECK(found.blocking_exposed_seconds > 0.8 * 2 * found.work_seconds);
  CHECK(found.overlapped_exposed_seconds >= 0);
  CHECK(found.overlapped_step_seconds > 0);
  CHECK(found.blocking_step_seconds > found.blocking_exposed_seconds);
}

TEST_CASE("the cost of rows of experts, waited for and in chunks during products") {
  LayerOverlapInput input = expert_overlap(sample_config(
      wide_experts({"model.family=llama", "model.seq_length=256", "model.num_layers=2",
                    "train.global_batch_size=4", "moe.num_experts=4", "moe.router_topk=2"})));
  CHECK(input.overlapped.moe.comp_comm_parallel_degree == 2);
  CHECK_FALSE(input.blocking.moe.comp_comm_parallel);
  input.share = 1.0;
  input.rounds = 1;
  input.steps = 3;
  double least = 1;  // half of it is left; other work on the machine adds to that
  for (int attempt = 0; attempt < attempts() && least > 0.8; ++attempt) {
    const OverlapResult found = measure_layer_overlap(input);
    CHECK(found.work_seconds > 0);
    // Four ways in each layer; the router may be far from even.
    CHECK(found.blocking_exposed_seconds > 0.5 * 2 * 4 * found.work_seconds);
    least = std::min(least, found.ratio());
  }
  CHECK((least <= 0.8 || watched()));
}

TEST_CASE("the cost of rows of experts, waited for and during passes of other micro-batches") {
  LayerOverlapInput input = pass_overlap(sample_config(
      wide_experts({"model.family=llama", "model.seq_length=128", "model.num_layers=2",
                    "train.global_batch_size=8", "moe.num_experts=4", "moe.router_topk=2"})));
  CHECK(input.overlapped.moe.overlap_expert_parallel_comm);
  CHECK_FALSE(input.blocking.moe.overlap_expert_parallel_comm);
  input.rounds = 1;
  input.steps = 3;
  double least =
      1;  // a quarter of it overlaps with nothing; other work on the machine adds to that
  for (int attempt = 0; attempt < attempts() && least > 0.8; ++attempt) {
    const OverlapResult found = measure_layer_overlap(input);
    CHECK(found.work_seconds > 0);
    // Four ways in each layer for each micro-batch; the router may be far from even.
    CHECK(found.blocking_exposed_seconds > 0.5 * 0.5 * 2 * 4 * 4 * found.work_seconds);
    least = std::min(least, found.ratio());
  }
  CHECK((least <= 0.8 || watched()));
}

TEST_CASE("the times of units come back from the rows of two stages") {
  const UnitTimes given{.embedding = {0, 0.5, 0.75}, .layer = {1, 2, 1.5}, .head = {3, 0.25, 1.25}};
  const Plan plan = plan_on_threads(on_stages(sample_config(layers4), 2, 4));
  const UnitTimes found = unit_times(plan, made_up(plan, given));
  CHECK(found.embedding.forward == 0);
  CHECK(found.layer.forward == Approx(1));
  CHECK(found.head.forward == Approx(3));
  CHECK(found.embedding.input == Approx(0.5));
  CHECK(found.layer.input == Approx(2));
  CHECK(found.head.input == Approx(0.25));
  CHECK(found.embedding.weight == Approx(0.75));
  CHECK(found.layer.weight == Approx(1.5));
  CHECK(found.head.weight == Approx(1.25));
}

TEST_CASE("a pipeline is played from the times of its units") {
  const UnitTimes even{.embedding = {}, .layer = {1, 1, 1}, .head = {}};
  for (const std::int64_t stages : {2, 4}) {
    const Plan plan = plan_on_threads(on_stages(sample_config(layers4), stages, 8));
    const Simulation free = predict(plan, even, {});
    CHECK(plan.map.stages == stages);
    CHECK(plan.microbatches == 8);
    CHECK(free.bubble_fraction == Approx(plan.bubble_fraction));
    const double layers = 4.0 / static_cast<double>(stages);
    CHECK(free.seconds == Approx(3 * layers * static_cast<double>(8 + stages - 1)));
    // A message through every stage and back, at least, makes it longer.
    const Simulation slow = predict(plan, even, {.wire_alpha_seconds = 0.125});
    CHECK(slow.seconds >= free.seconds + 2 * 0.125 * static_cast<double>(stages - 1));
    CHECK(slow.bubble_fraction > free.bubble_fraction);
  }
}
