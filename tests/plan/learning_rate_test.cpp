#include "plan/rules/learning_rate.h"

#include <cmath>

#include "catch.h"

using namespace trainctl;

namespace {

struct Row {
  std::int64_t step;
  double rate;
};

void check_rates(const LrScheduleConfig& schedule, std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    INFO("step " << row.step);
    CHECK(learning_rate(schedule, 100, row.step) == Approx(row.rate).epsilon(1e-12));
  }
}

LrScheduleConfig schedule_of(LrStyle style) {
  LrScheduleConfig schedule;
  schedule.style = style;
  schedule.max_lr = 1.0;
  schedule.min_lr = 0.2;
  schedule.warmup_steps = 20;
  return schedule;
}

}  // namespace

TEST_CASE("constant warms up and stays", "[learning_rate]") {
  LrScheduleConfig schedule = schedule_of(LrStyle::constant);
  check_rates(schedule, {{0, 0.0}, {1, 0.05}, {10, 0.5}, {20, 1.0}, {21, 1.0}, {1000, 1.0}});
  schedule.init_lr = 0.4;
  check_rates(schedule, {{0, 0.4}, {10, 0.7}, {20, 1.0}});
  schedule.warmup_steps = 0;
  check_rates(schedule, {{0, 1.0}, {1, 1.0}});
}

TEST_CASE("linear", "[learning_rate]") {
  LrScheduleConfig schedule = schedule_of(LrStyle::linear);
  check_rates(schedule, {{20, 1.0}, {30, 0.9}, {60, 0.6}, {100, 0.2}, {101, 0.2}});
  schedule.decay_steps = 60;
  check_rates(schedule, {{40, 0.6}, {60, 0.2}, {61, 0.2}, {100, 0.2}});
}

TEST_CASE("cosine", "[learning_rate]") {
  const double eighth = 0.5 * (1 + std::sqrt(0.5));  // a quarter of the way down
  check_rates(schedule_of(LrStyle::cosine), {{20, 1.0},
                                             {40, 0.2 + 0.8 * eighth},
                                             {60, 0.6},
                                             {80, 0.2 + 0.8 * (1 - eighth)},
                                             {100, 0.2},
                                             {500, 0.2}});
}

TEST_CASE("inverse square root", "[learning_rate]") {
  LrScheduleConfig schedule = schedule_of(LrStyle::inverse_square_root);
  check_rates(schedule, {{10, 0.5}, {20, 1.0}, {80, 0.5}, {100, std::sqrt(0.2)}, {101, 0.2}});
  schedule.min_lr = 0.6;
  check_rates(schedule, {{80, 0.6}});
  schedule.min_lr = 0;
  schedule.warmup_steps = 0;
  check_rates(schedule, {{0, 1.0}, {1, 1.0}, {4, 0.5}, {25, 0.2}});
}

TEST_CASE("warm-up, stable, decay", "[learning_rate]") {
  LrScheduleConfig schedule = schedule_of(LrStyle::wsd);
  schedule.wsd_decay_steps = 40;
  schedule.wsd_decay_style = "linear";
  check_rates(schedule, {{20, 1.0}, {59, 1.0}, {60, 1.0}, {70, 0.8}, {80, 0.6}, {100, 0.2}});
  schedule.wsd_decay_style = "cosine";
  check_rates(schedule, {{60, 1.0}, {80, 0.6}, {100, 0.2}, {101, 0.2}});
  schedule.wsd_decay_style = "exponential";
  check_rates(schedule, {{60, 1.0}, {80, 0.2 + 0.8 * (std::sqrt(2.0) - 1)}, {100, 0.2}});
  schedule.wsd_decay_style = "minus_sqrt";
  check_rates(schedule, {{60, 1.0}, {70, 0.6}, {100, 0.2}});
}

TEST_CASE("weight decay rises from start to end", "[learning_rate]") {
  OptimizerConfig optimizer;
  optimizer.weight_decay = 0.1;
  CHECK(weight_decay(optimizer, 100, 0) == 0.1);
  CHECK(weight_decay(optimizer, 100, 1000) == 0.1);
  optimizer.start_weight_decay = 0.02;
  optimizer.end_weight_decay = 0.1;
  optimizer.weight_decay_incr_style = "linear";
  CHECK(weight_decay(optimizer, 100, 0) == Approx(0.02));
  CHECK(weight_decay(optimizer, 100, 25) == Approx(0.04));
  CHECK(weight_decay(optimizer, 100, 100) == Approx(0.1));
  CHECK(weight_decay(optimizer, 100, 101) == Approx(0.1));
  optimizer.weight_decay_incr_style = "cosine";
  CHECK(weight_decay(optimizer, 100, 0) == Approx(0.02));
  CHECK(weight_decay(optimizer, 100, 50) == Approx(0.06));
  CHECK(weight_decay(optimizer, 100, 100) == Approx(0.1));
}

TEST_CASE("the rise of weight decay has a length of its own", "[learning_rate]") {
  OptimizerConfig optimizer;
  optimizer.start_weight_decay = 0.01;
  optimizer.end_weight_decay = 0.05;
  optimizer.weight_decay_incr_style = "linear";
  // Megatron: start + min(1, completed / length) x (end - start).
  for (const auto& [completed, decay] :
       {std::pair{0, 0.01}, {1, 0.02}, {2, 0.03}, {3, 0.04}, {4, 0.05}, {5, 0.05}}) {
    INFO("after " << completed);
    CHECK(weight_decay(optimizer, 4, completed) == Approx(decay).epsilon(1e-12));
    OptimizerConfig given = optimizer;
    given.weight_decay_incr_steps = 4;
    CHECK(weight_decay(given, 100, completed) == Approx(decay).epsilon(1e-12));
    CHECK(weight_decay(given, 2, completed) == Approx(decay).epsilon(1e-12));
  }
  optimizer.weight_decay_incr_style = "cosine";
  optimizer.weight_decay_incr_steps = 4;
  const double quarter = 0.5 - 0.5 * std::sqrt(0.5);
  CHECK(weight_decay(optimizer, 100, 1) == Approx(0.01 + 0.04 * quarter).epsilon(1e-12));
  CHECK(weight_decay(optimizer, 100, 2) == Approx(0.03).epsilon(1e-12));
  CHECK(weight_decay(optimizer, 100, 4) == Approx(0.05).epsilon(1e-12));
}

TEST_CASE("rates stay between their bounds for every style", "[learning_rate]") {
  for (LrStyle style : {LrStyle::constant, LrStyle::linear, LrStyle::cosine,
                        LrStyle::inverse_square_root, LrStyle::wsd}) {
    for (std::int64_t warmup : {0, 1, 7, 99}) {
      for (std::int64_t last_phase : {1, 13, 100}) {
        LrScheduleConfig schedule = schedule_of(style);
        schedule.warmup_steps = warmup;
        schedule.wsd_decay_steps = last_phase;
        for (std::int64_t step = 0; step < 150; ++step) {
          const double rate = learning_rate(schedule, 100, step);
          REQUIRE(rate <= 1.0 + 1e-12);
          if (step > warmup) REQUIRE(rate >= 0.2 - 1e-12);
        }
      }
    }
  }
}
