// The batches of a ramp against Megatron-LM's rule, step by step.
#include "config/support/batch_ramp.h"

#include "catch.h"

using namespace trainctl;

namespace {

TrainConfig with_ramp(std::int64_t global, const IntList& ramp, bool decreases = false) {
  TrainConfig train;
  train.global_batch_size = global;
  train.rampup_batch_size = ramp;
  train.decrease_batch_size_if_needed = decreases;
  return train;
}

/// RampupBatchsizeNumMicroBatchesCalculator.update of megatron.core, in whole numbers.
std::int64_t megatron_batch(const TrainConfig& train, std::int64_t consumed, std::int64_t unit) {
  const IntList& ramp = *train.rampup_batch_size;
  const std::int64_t levels = (train.global_batch_size - ramp[0]) / ramp[1];
  std::int64_t batch = train.global_batch_size;
  if (consumed < ramp[2]) batch = ramp[0] + consumed * levels / ramp[2] * ramp[1];
  return train.decrease_batch_size_if_needed ? batch / unit * unit : batch;
}

}  // namespace

TEST_CASE("a ramp has the batches of Megatron-LM's rule") {
  struct Case {
    TrainConfig train;
    std::int64_t unit;
  };
  const Case cases[] = {
      {with_ramp(64, {16, 16, 1000}), 16},     {with_ramp(64, {16, 8, 1}), 8},
      {with_ramp(64, {16, 16, 0}), 16},        {with_ramp(10, {1, 3, 100}), 1},
      {with_ramp(32, {8, 4, 37}), 4},          {with_ramp(100, {20, 10, 777}, true), 8},
      {with_ramp(33, {8, 5, 50}, true), 8},    {with_ramp(1536, {16, 16, 58593}), 16},
      {with_ramp(256, {1, 1, 12345}, true), 4}};
  for (const Case& one : cases) {
    const std::vector<RampPart> parts = batch_ramp(one.train, one.unit);
    // Below one unit nothing is left to round down to; such ramps are refused.
    const bool starts = (*one.train.rampup_batch_size)[0] >= one.unit;
    if (!starts) continue;
    std::int64_t consumed = 0;
    for (std::int64_t step = 0; step < 300; ++step) {
      CAPTURE(one.train.global_batch_size, step);
      const std::int64_t batch = part_after(parts, step).batch;
      REQUIRE(batch == megatron_batch(one.train, consumed, one.unit));
      REQUIRE(samples_in(parts, step) == consumed);
      REQUIRE(steps_with(parts, consumed) == step);
      REQUIRE(steps_with(parts, consumed + 1) == step + 1);
      consumed += batch;
    }
    for (std::size_t i = 1; i < parts.size(); ++i) {
      CHECK(parts[i].batch > parts[i - 1].batch);
      CHECK(parts[i].first_step > parts[i - 1].first_step);
    }
  }
}

TEST_CASE("without a ramp every step has one batch, rounded down where that is asked") {
  TrainConfig train;
  train.global_batch_size = 33;
  CHECK(batch_ramp(train, 16) == std::vector<RampPart>{{0, 0, 33}});
  train.decrease_batch_size_if_needed = true;  // megatron.core's test: 33 of 8 x 2 runs 32
  CHECK(batch_ramp(train, 16) == std::vector<RampPart>{{0, 0, 32}});
  train.global_batch_size = 32;
  CHECK(batch_ramp(train, 24) == std::vector<RampPart>{{0, 0, 24}});
  CHECK(samples_in(batch_ramp(train, 24), 5) == 120);
  CHECK(steps_with(batch_ramp(train, 24), 121) == 6);
  // Far steps do not overflow.
  CHECK(samples_in(batch_ramp(train, 24), std::int64_t{1} << 60) > 0);
}

TEST_CASE("a ramp that breaks its rules says so, and counts as none") {
  for (const IntList& ramp : {IntList{4, 4}, IntList{0, 4, 10}, IntList{4, 0, 10},
                              IntList{40, 4, 10}, IntList{4, 5, 10}}) {
    const TrainConfig train = with_ramp(32, ramp);
    CHECK(problem_of_ramp(train));
    CHECK(batch_ramp(train, 4).size() == 1);
  }
  CHECK(problem_of_ramp(with_ramp(1000, {1, 1, 10})));
  CHECK_FALSE(problem_of_ramp(with_ramp(32, {4, 4, 10})));
}
