// What an embedding program may run inside a step.
#include <atomic>
#include <map>
#include <mutex>

#include "catch.h"
#include "engine/param_store.h"
#include "sample_run.h"

using namespace trainctl;

TEST_CASE("each phase is timed once in a step") {
  std::map<std::string, int> calls;
  Hooks hooks;
  hooks.timers = [&](std::string_view phase, double seconds) {
    CHECK(seconds >= 0);
    ++calls[std::string(phase)];
  };
  train_sample({.set_options = {}, .ranks = 1, .steps = 3, .world = {}, .hooks = hooks});
  CHECK(calls == std::map<std::string, int>{{"forward-backward", 3}, {"optimizer", 3}});
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
  train_sample({.set_options = {"parallel.pipeline_stages=2", "train.micro_batch_num=2"},
                .ranks = 2,
                .steps = 3,
                .world = {},
                .hooks = hooks});
  std::map<Call, int> expected;
  for (int unit = 0; unit < 4; ++unit) {
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      expected[{unit, microbatch}] = unit == 1 ? 6 : 3;
    }
  }
  CHECK(calls == expected);
  CHECK(whole);
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
    const Tensor gradients = store.gradients();
    for (std::int64_t i = 0; i < gradients.numel(); ++i) gradients.as<float>()[i] = 0.5F;
  };
  const auto reports =
      train_sample({.set_options = {}, .ranks = 2, .steps = 2, .world = {}, .hooks = hooks});
  const auto plain = train_sample({.set_options = {}, .ranks = 2, .steps = 2, .world = {}});
  CHECK(reports[0].grad_norm > 10 * plain[0].grad_norm);
}
