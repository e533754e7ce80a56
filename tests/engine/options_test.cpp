// Options of the YAML file that change what a step computes, or must not.
#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "config/read/read.h"
#include "plan/prepare/make_plan.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

Options joined(Options one, const Options& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

std::vector<StepReport> reports_of(const Options& options, int ranks = 1) {
  SampleRun run;
  run.set_options = options;
  run.ranks = ranks;
  run.steps = 3;
  return train_sample(run);
}

void check_same(const std::vector<StepReport>& one, const std::vector<StepReport>& other) {
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].loss == other[i].loss);
    CHECK(one[i].grad_norm == other[i].grad_norm);
  }
}

Plan sample_plan(const Options& options, std::int64_t ranks) {
  const ReadResult read = read_config_text(sample_yaml(), "sample.yaml", options);
  Diagnostics diagnostics;
  Plan plan = make_plan(read.config, {.world_size = ranks, .ranks_per_host = ranks}, read.sources,
                        diagnostics);
  REQUIRE_FALSE(diagnostics.has_errors());
  return plan;
}

std::int64_t logits_of(const Plan& plan) {
  for (const ActivationSpec& row : plan.stages.back().activations) {
    if (row.name == "head.logits") return row.shape.numel();
  }
  return 0;
}

/// Absolute sums of all weight matrices, and of all norms, of one rank.
struct Sums {
  double matrices = 0;
  double norms = 0;
};

Sums initial_sums(const Options& options) {
  Sums sums;
  SampleRun run;
  run.set_options = options;
  run.steps = 0;
  run.inspect = [&](Engine& engine, const Plan& plan, World&) {
    ParamStore& store = engine.parameters();
    for (const ParamSpec& row : plan.stages.front().parameters) {
      const Tensor values = store.master(store.index_of(row.name));
      double sum = 0;
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        sum += std::abs(static_cast<double>(values.as<float>()[i]));
      }
      (row.is_vector ? sums.norms : sums.matrices) += sum;
    }
  };
  train_sample(run);
  return sums;
}

}  // namespace

TEST_CASE("autocast_dtype is the type of the matrix products") {
  const Options autocast{"precision.enable_autocast=true", "precision.autocast_dtype=bf16"};
  check_same(reports_of(autocast), reports_of({"precision.compute=bf16"}));
  check_same(reports_of({"precision.enable_autocast=true"}), reports_of({}));
  CHECK(sample_plan(autocast, 1).compute == DType::bf16);
}

TEST_CASE("grad_scale none leaves the loss unscaled in fp16") {
  const Options fp16{"precision.compute=fp16"};
  REQUIRE(reports_of(fp16).front().loss_scale.has_value());
  const auto unscaled = reports_of(joined(fp16, {"hooks.grad_scale=none"}));
  CHECK_FALSE(unscaled.front().loss_scale.has_value());
  CHECK_FALSE(unscaled.back().skipped);
}

TEST_CASE("without perform_initialization the matrices start at 0") {
  const Sums drawn = initial_sums({});
  const Sums empty = initial_sums({"model.perform_initialization=false"});
  CHECK(drawn.matrices > 1);
  CHECK(empty.matrices == 0);
  CHECK(empty.norms == drawn.norms);
}

TEST_CASE("without cross_entropy_loss_fusion the head holds all logits at once") {
  const Options whole{"model.cross_entropy_loss_fusion=false"};
  const Options larger{"model.seq_length=64"};  // 512 tokens, in parts of 128
  const Plan parts_plan = sample_plan(larger, 1);
  const Plan whole_plan = sample_plan(joined(larger, whole), 1);
  CHECK(logits_of(whole_plan) == 512 * whole_plan.local.vocabulary);
  CHECK(logits_of(parts_plan) == 128 * parts_plan.local.vocabulary);
  const auto parts = reports_of(larger);
  const auto at_once = reports_of(joined(larger, whole));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CHECK(std::abs(at_once[i].loss - parts[i].loss) <= 1e-5 * parts[i].loss);
  }
}

TEST_CASE("a ring exchange is one batch of messages") {
  const Options pipeline{"parallel.pipeline_stages=2", "train.micro_batch_size=2"};
  const Options ring{"parallel.pipeline.use_ring_exchange_p2p=true",
                     "parallel.pipeline.batch_p2p_comm=false"};
  CHECK(sample_plan(joined(pipeline, ring), 2).messages.mode == MessageMode::batched);
  check_same(reports_of(joined(pipeline, ring), 2), reports_of(pipeline, 2));
}
