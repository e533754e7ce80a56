// fp16, and the loss scale in every layout: what a step that overflows leaves alone, how the scale
// moves, and that all ranks agree.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

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

Options operator+(Options a, const Options& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Options eight{"parallel.tensor_parallel=2", "parallel.pipeline_stages=2",
                    "parallel.data_parallel=2", "train.micro_batch_size=1"};
const Options scaled{"precision.dynamic_loss_scale=true", "precision.initial_loss_scale=1024"};
const Options half{"precision.compute=fp16"};

thread_local int this_rank = 0;

/// Puts an infinity into a gradient of `rank` in these steps (1 for the first). Each rank counts
/// its own.
SampleRun with_overflow(SampleRun run, int rank, std::vector<int> steps) {
  run.make_trace = [](const World& world, const Plan&) -> Trace* {
    this_rank = world.rank();
    return nullptr;
  };
  auto counts = std::make_shared<std::map<int, int>>();
  auto mutex = std::make_shared<std::mutex>();
  run.hooks.finalize_model_grads = [=](ParamStore& store) {
    const std::lock_guard lock(*mutex);
    const int step = ++(*counts)[this_rank];
    const bool now = std::find(steps.begin(), steps.end(), step) != steps.end();
    if (this_rank == rank && now) store.gradient(0).as<float>()[1] = INFINITY;
  };
  return run;
}

/// Masters, compute copies and optimizer values of every rank, and its step state.
struct Held {
  std::vector<std::byte> bytes;
  StepState state;
};

std::map<int, Held> held_after(SampleRun run) {
  std::map<int, Held> all;
  std::mutex mutex;
  run.inspect = [&](Engine& engine, const Plan&, World& world) {
    Held held;
    held.state = engine.step_state();
    const auto take = [&](const Tensor& x) {
      if (x.empty()) return;
      const auto* begin = static_cast<const std::byte*>(x.data);
      held.bytes.insert(held.bytes.end(), begin, begin + x.bytes());
    };
    const ParamStore& store = engine.parameters();
    for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
      take(store.master(i));
      take(store.resident(i));
      take(store.state(i, 0));
      take(store.state(i, 1));
    }
    const std::lock_guard lock(mutex);
    all[world.rank()] = std::move(held);
  };
  train_sample(run);
  return all;
}

std::vector<double> scales_of(const std::vector<StepReport>& reports) {
  std::vector<double> scales;
  for (const StepReport& report : reports) scales.push_back(report.loss_scale.value_or(0));
  return scales;
}

double largest_error(const Options& options, const std::string& layout) {
  const Config config = read_config_text(sample_yaml(), "sample.yaml", options).config;
  const LayoutChoice choice = parse_layouts(layout, 0).front();
  const Config own = with_layout(config, choice);
  Diagnostics diagnostics;
  const Plan plan = make_plan(own, {.world_size = choice.ranks(), .ranks_per_host = choice.ranks()},
                              {}, diagnostics);
  require(!diagnostics.has_errors(), ExitCode::config, render_text(diagnostics, false));
  const LayoutVerdict verdict = Verification(config, 2).compare({own, plan, 20});
  INFO(layout << ": " << (verdict.first ? verdict.first->place() : "") << verdict.failure);
  CHECK(verdict.equal);
  return verdict.largest.error;
}

}  // namespace

TEST_CASE("an infinity on one rank leaves every rank as it was, and the scale falls", "[threads]") {
  // A parameter that is not updated is not clipped either.
  const Options clipped{"optimizer.qk_clip_threshold=1e-4"};
  for (const Options& precision : {scaled, half + scaled + clipped}) {
    for (const int rank : {0, 3, 5, 6}) {
      INFO("rank " << rank);
      SampleRun run{.set_options = eight + precision, .ranks = 8, .steps = 2, .world = {}};
      const auto before = held_after(run);
      run.steps = 4;
      const auto after = held_after(with_overflow(run, rank, {3, 4}));
      REQUIRE(after.size() == 8);
      for (const auto& [own, held] : after) {
        CHECK(held.bytes == before.at(own).bytes);
        CHECK(held.state.found_inf);
        CHECK(held.state.updates == 2);
        CHECK(held.state.loss_scale == 512);  // the second uses the hysteresis up
      }
    }
  }
}

TEST_CASE("a step that is left out does not count: rate and Adam's correction go on from before") {
  const SampleRun run{.set_options = scaled, .ranks = 1, .steps = 4, .world = {}};
  const auto reports = train_sample(with_overflow(run, 0, {2}));
  const auto usual = train_sample(run);
  CHECK(reports[1].skipped);
  CHECK(reports[1].step == 2);
  CHECK(std::isfinite(reports[1].loss));
  CHECK(reports[1].lr == usual[1].lr);
  CHECK(reports[2].lr == usual[1].lr);
  CHECK(reports[3].lr == usual[2].lr);
  CHECK_FALSE(reports[2].skipped);
}

TEST_CASE("the scale of a run: constant, growing after its window, none") {
  SampleRun run{.set_options = scaled + Options{"precision.loss_scale_window=2"},
                .ranks = 2,
                .steps = 5,
                .world = {}};
  CHECK(scales_of(train_sample(run)) == std::vector<double>{1024, 1024, 2048, 2048, 4096});
  run.set_options = {"precision.loss_scale=64"};
  CHECK(scales_of(train_sample(run)) == std::vector<double>(5, 64));
  run.set_options = {};
  CHECK(scales_of(train_sample(run)) == std::vector<double>(5, 0));
}

TEST_CASE("in fp32 a power of two as loss scale changes no bit") {
  const Options layout = eight + Options{"parallel.parallel_optimizer.enable=true",
                                         "parallel.parallel_optimizer.threshold=0"};
  SampleRun run{.set_options = layout, .ranks = 8, .steps = 4, .world = {}};
  const auto plain = train_sample(run);
  for (const Options& precision :
       {scaled, Options{"precision.loss_scale=0.25"}, Options{"precision.loss_scale=4294967296"}}) {
    run.set_options = layout + precision;
    const auto reports = train_sample(run);
    for (std::size_t step = 0; step < plain.size(); ++step) {
      CHECK(reports[step].loss == plain[step].loss);
      CHECK(reports[step].grad_norm == plain[step].grad_norm);
    }
  }
}

TEST_CASE("fp16 finds its loss scale and then trains as fp32 does") {
  SampleRun run{.set_options = half, .ranks = 2, .steps = 60, .world = {}};
  const auto reports = train_sample(run);
  CHECK(reports[0].loss_scale == 0x1p32);
  CHECK(reports[0].skipped);
  CHECK(reports[1].loss_scale == 0x1p32);  // hysteresis
  CHECK(reports[2].loss_scale == 0x1p31);
  std::size_t skipped = 0;
  while (skipped < reports.size() && reports[skipped].skipped) ++skipped;
  REQUIRE(skipped < 30);
  CHECK(reports[skipped].lr == reports[0].lr);
  for (std::size_t step = skipped; step < reports.size(); ++step) {
    CHECK(std::isfinite(reports[step].loss));
  }
  CHECK(reports.back().loss < reports[0].loss - 0.3);
  // Training from a scale that fits gives the numbers of fp32, up to rounding.
  run.set_options = half + Options{"precision.loss_scale=1024"};
  run.steps = 10;
  const auto fitting = train_sample(run);
  run.set_options = {};
  const auto wide = train_sample(run);
  for (std::size_t step = 0; step < wide.size(); ++step) {
    CHECK_FALSE(fitting[step].skipped);
    CHECK(fitting[step].loss == Approx(wide[step].loss).epsilon(5e-3));
    CHECK(fitting[step].grad_norm == Approx(wide[step].grad_norm).epsilon(2e-2));
  }
}

TEST_CASE("overflow is divergence where the scale cannot fall, at the second step in a row") {
  const auto failure_of = [](const Options& options, std::vector<int> steps) -> std::string {
    try {
      train_sample(with_overflow({.set_options = options, .ranks = 1, .steps = 6, .world = {}}, 0,
                                 std::move(steps)));
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::diverged);
      return error.what();
    }
    return "";
  };
  const Options least =
      scaled + Options{"precision.min_loss_scale=512", "precision.loss_scale_hysteresis=1"};
  CHECK(failure_of(least, {2, 4, 6}).empty());
  CHECK(failure_of(least, {2, 3, 4}) ==
        "step 3: gradients overflowed in 2 steps in a row, the last with loss scale 512, which "
        "cannot fall: it is precision.min_loss_scale");
  CHECK(failure_of({"precision.loss_scale=64"}, {2, 4}).empty());
  CHECK(failure_of({"precision.loss_scale=64"}, {4, 5}) ==
        "step 5: gradients overflowed in 2 steps in a row, the last with loss scale 64, which "
        "cannot fall: precision.loss_scale is constant");
  CHECK(failure_of(least + Options{"train.on_bad_loss=skip"}, {2, 3, 4, 5}).empty());
  CHECK_THAT(failure_of({}, {2}),
             Catch::Contains("step 2, rank 0: the gradient norm is not finite"));
}

TEST_CASE("layouts agree in fp16, and in fp32 with a scaler") {
  const Options gpt{"model.num_layers=4", "model.hidden_dropout=0.1",
                    "model.num_attention_heads=8"};
  const Options llama{"model.family=llama", "model.num_layers=4", "model.num_query_groups=2",
                      "model.num_attention_heads=8"};
  for (const Options& model : {gpt, llama}) {
    for (const char* layout : {"tp2sp+pp2+dp2+m4+zero1", "tp4+pp2+gpipe"}) {
      CHECK(largest_error(model + half, layout) < half_bound);
      CHECK(largest_error(model + scaled + Options{"precision.initial_loss_scale=4294967296"},
                          layout) < 1e-3);  // the bound in fp32 of a day's later gradients
    }
  }
}
