// The functions that an embedding program may run inside a step.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

#include "catch.h"
#include "engine/parameters/param_store.h"
#include "engine/trace.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

void clear(const Tensor& values) { std::fill_n(values.as<float>(), values.numel(), 0.0F); }

/// Two micro-batches.
std::vector<StepReport> train_stages(int stages, int steps, const Hooks& hooks) {
  return train_sample({.set_options = {"parallel.pipeline_stages=" + std::to_string(stages),
                                       "train.micro_batch_num=2"},
                       .ranks = stages,
                       .steps = steps,
                       .world = {},
                       .hooks = hooks});
}

}  // namespace

TEST_CASE("each phase is timed once in a step") {
  std::map<std::string, int> calls;
  Hooks hooks;
  hooks.timers = [&](std::string_view phase, double seconds) {
    CHECK(seconds >= 0);
    ++calls[std::string(phase)];
  };
  train_sample({.set_options = {}, .ranks = 1, .steps = 3, .world = {}, .hooks = hooks});
  std::map<std::string, int> expected;
  for (const std::string_view timer : timer_names) expected[std::string(timer)] = 3;
  CHECK(calls == expected);
}

TEST_CASE("the hook after a unit's forward sees each unit, and what the next stage gets",
          "[threads]") {
  using Call = std::pair<int, int>;  // unit and micro-batch
  std::mutex mutex;
  std::map<Call, int> calls;
  bool whole = true;
  Hooks hooks;
  hooks.after_forward = [&](int unit, int microbatch, const Tensor& stream) {
    const std::lock_guard lock(mutex);
    ++calls[{unit, microbatch}];
    whole = whole && stream.shape == Shape{4 * 16, 32};
  };
  train_stages(2, 3, hooks);
  std::map<Call, int> expected;
  for (int unit = 0; unit < 4; ++unit) {
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      expected[{unit, microbatch}] = unit == 1 ? 6 : 3;
    }
  }
  CHECK(calls == expected);
  CHECK(whole);
}

TEST_CASE("the hook after a unit's backward sees the gradient for each unit below", "[threads]") {
  using Call = std::pair<int, int>;  // unit and micro-batch
  std::mutex mutex;
  std::map<Call, int> calls;
  bool whole = true;
  Hooks hooks;
  hooks.after_backward = [&](int unit, int microbatch, const Tensor& gradient) {
    const std::lock_guard lock(mutex);
    ++calls[{unit, microbatch}];
    whole = whole && gradient.shape == Shape{4 * 16, 32};
  };
  train_stages(2, 3, hooks);
  std::map<Call, int> expected;
  for (int unit = 1; unit < 4; ++unit) {
    for (int microbatch = 0; microbatch < 2; ++microbatch) expected[{unit, microbatch}] = 3;
  }
  CHECK(calls == expected);
  CHECK(whole);
}

TEST_CASE("the next unit reads what a hook leaves, on its own stage and on another", "[threads]") {
  Hooks forward;
  forward.after_forward = [](int unit, int, const Tensor& stream) {
    if (unit == 1) clear(stream);
  };
  Hooks backward;
  backward.after_backward = [](int unit, int, const Tensor& gradient) {
    if (unit == 2) clear(gradient);
  };
  std::atomic<bool> cut_elsewhere = false;
  backward.finalize_model_grads = [&](ParamStore& store) {
    const auto largest = [](const Tensor& values) {
      const float* begin = values.as<float>();
      return *std::max_element(begin, begin + values.numel());
    };
    int index = 0;
    for (const ParamSpec& row : store.table()) {
      if (row.name.ends_with("norm1.weight")) {
        if ((largest(store.gradient(index)) > 0) != (row.unit > 1)) cut_elsewhere = true;
      }
      ++index;
    }
  };
  const StepReport plain = train_stages(1, 1, {}).front();
  for (const Hooks& hooks : {forward, backward}) {
    const StepReport alone = train_stages(1, 1, hooks).front();
    const StepReport staged = train_stages(2, 1, hooks).front();
    CHECK(std::abs(alone.grad_norm / plain.grad_norm - 1) > 1e-3);
    CHECK(staged.loss == Approx(alone.loss).epsilon(1e-6));
    CHECK(staged.grad_norm == Approx(alone.grad_norm).epsilon(1e-5));
  }
  CHECK_FALSE(cut_elsewhere);
}

TEST_CASE("the hook before a bucket's sum sees every bucket on every rank", "[threads]") {
  std::atomic<int> sums = 0;
  std::atomic<int> highest = 0;
  Hooks hooks;
  hooks.grad_sync = [&](int bucket) {
    ++sums;
    int seen = highest;
    while (bucket > seen && !highest.compare_exchange_weak(seen, bucket)) {
    }
  };
  train_sample({.set_options = {}, .ranks = 2, .steps = 3, .world = {}, .hooks = hooks});
  CHECK(highest > 0);
  CHECK(sums == 2 * 3 * (highest + 1));
}

TEST_CASE("finalize_model_grads may change summed gradients before the norm") {
  Hooks hooks;
  hooks.finalize_model_grads = [](ParamStore& store) {
    const Tensor gradients = store.made_gradients();
    for (std::int64_t i = 0; i < gradients.numel(); ++i) gradients.as<float>()[i] = 0.5F;
  };
  const auto reports =
      train_sample({.set_options = {}, .ranks = 2, .steps = 2, .world = {}, .hooks = hooks});
  const auto plain = train_sample({.set_options = {}, .ranks = 2, .steps = 2, .world = {}});
  CHECK(reports[0].grad_norm > 10 * plain[0].grad_norm);
}
