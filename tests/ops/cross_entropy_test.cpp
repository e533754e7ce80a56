#include "ops/cross_entropy.h"

#include "catch.h"
#include "op_values.h"

namespace cross_entropy_test {

using namespace op_test;

namespace {

/// Logits with labels and weights, and what the two passes make of them.
struct Loss {
  std::int64_t rows, columns, valid;
  Values logits, labels, weight, row_max, row_sum, target;
  StepState state;
  LogitForm form;

  Loss(std::int64_t row_count, std::int64_t column_count, std::int64_t valid_count, DType type)
      : rows(row_count),
        columns(column_count),
        valid(valid_count),
        logits(Values::random(Shape{row_count, column_count}, type, 1, 3)),
        labels(Shape{row_count}, DType::i32),
        weight(Values::random(Shape{row_count}, DType::f32, 2)),
        row_max(Shape{row_count}, DType::f32),
        row_sum(Shape{row_count}, DType::f32),
        target(Shape{row_count}, DType::f32) {
    for (std::int64_t row = 0; row < rows; ++row) {
      labels.tensor().as<std::int32_t>()[row] = static_cast<std::int32_t>(row * 7 % valid);
    }
    state.loss_factor = 0.03125F;
    state.loss_scale = 4;
    state.loss_sum = 1;
  }

  void stats(const Kernels& kernels, int threads = 2) {
    cross_entropy_stats(Host(kernels, threads).context(), gradient_args());
  }
  CrossEntropyArgs gradient_args() {
    return {.logits = logits.tensor(),
            .labels = labels.tensor(),
            .valid = valid,
            .row_max = row_max.tensor(),
            .row_sum = row_sum.tensor(),
            .target = target.tensor(),
            .weight = weight.tensor(),
            .state = &state,
            .form = form};
  }
  void gradient(const Kernels& kernels, int threads = 2) {
    cross_entropy_gradient(Host(kernels, threads).context(), gradient_args());
  }
  double loss(const Kernels& kernels) {
    state.loss_sum = 0;
    stats(kernels);
    CrossEntropyArgs args = gradient_args();
    args.forward_only = true;
    cross_entropy_gradient(Host(kernels).context(), args);
    return state.loss_sum;
  }
};

}  // namespace

TEST_CASE("cross_entropy agrees with the plain loops and with itself on any number of threads") {
  const auto size =
      GENERATE(Shape{1, 1, 1}, Shape{3, 17, 13}, Shape{9, 128, 128}, Shape{5, 9001, 8990});
  for (const DType type : float_types) {
    Loss fast(size[0], size[1], size[2], type);
    Loss plain = fast;
    Loss alone = fast;
    fast.stats(tested_kernels());
    plain.stats(plain_kernels);
    alone.stats(tested_kernels(), 1);
    CHECK(fast.row_max == plain.row_max);
    CHECK(fast.target == plain.target);
    CHECK(difference(fast.row_sum, plain.row_sum) < 2e-6);
    CHECK(fast.row_sum == alone.row_sum);
    fast.gradient(tested_kernels());
    plain.gradient(plain_kernels);
    alone.gradient(tested_kernels(), 1);
    CHECK(difference(fast.logits, plain.logits) < tolerance(type));
    CHECK(fast.logits == alone.logits);
    CHECK(fast.state.loss_sum == Approx(plain.state.loss_sum).epsilon(1e-6));
    CHECK(fast.state.loss_sum == alone.state.loss_sum);
  }
}

TEST_CASE("cross_entropy sums rows whose largest logit moves from block to block") {
  constexpr std::int64_t columns = 13000;
  Loss fast(6, columns, columns, DType::f32);
  for (std::int64_t i = 0; i < columns; ++i) {
    const auto place = static_cast<float>(i);
    fast.logits.set(i, place / 100);                 // rises in every block
    fast.logits.set(columns + i, place / 20000);     // rises by less than 1
    fast.logits.set(2 * columns + i, -place / 100);  // falls
    fast.logits.set(3 * columns + i, i < 5000 ? -INFINITY : place / 1000);
    fast.logits.set(4 * columns + i, i == 12999 ? 1e30F : -1e30F);  // jumps, far
    fast.logits.set(5 * columns + i, -INFINITY);
  }
  Loss plain = fast;
  fast.stats(tested_kernels());
  plain.stats(plain_kernels);
  CHECK(fast.row_max == plain.row_max);
  for (std::int64_t row = 0; row < 5; ++row) {
    INFO("row " << row);
    CHECK(fast.row_sum.at(row) == Approx(plain.row_sum.at(row)).epsilon(1e-6));
  }
  CHECK(fast.row_sum.at(5) == 0);
}

TEST_CASE("cross_entropy's gradient is the slope of its loss") {
  Loss loss(3, 11, 9, DType::f32);
  loss.state.loss_factor = 1;
  loss.state.loss_scale = 1;
  Loss gradient = loss;
  gradient.stats(tested_kernels());
  gradient.gradient(tested_kernels());
  CHECK(slope_error(loss.logits, gradient.logits, 0.02F, [&] { return loss.loss(plain_kernels); }) <
        1e-3);
}

TEST_CASE("cross_entropy of scaled and capped logits agrees with the plain loops and its slope") {
  for (const LogitForm form : {LogitForm{0.125F, 0}, LogitForm{1, 3}, LogitForm{2, 5}}) {
    INFO("scale " << form.scale << " cap " << form.cap);
    for (const DType type : float_types) {
      Loss fast(9, 5001, 4990, type);
      fast.form = form;
      Loss plain = fast;
      fast.stats(tested_kernels());
      plain.stats(plain_kernels);
      CHECK(difference(fast.row_max, plain.row_max) < 2e-6);
      CHECK(difference(fast.row_sum, plain.row_sum) < 4e-6);
      CHECK(difference(fast.target, plain.target) < 2e-6);
      fast.gradient(tested_kernels());
      plain.gradient(plain_kernels);
      CHECK(difference(fast.logits, plain.logits) < tolerance(type));
      CHECK(fast.state.loss_sum == Approx(plain.state.loss_sum).epsilon(1e-6));
    }
    Loss loss(3, 11, 9, DType::f32);
    loss.form = form;
    loss.state.loss_factor = 1;
    loss.state.loss_scale = 1;
    Loss gradient = loss;
    gradient.stats(tested_kernels());
    gradient.gradient(tested_kernels());
    const auto of_plain = [&] { return loss.loss(plain_kernels); };
    CHECK(slope_error(loss.logits, gradient.logits, 0.02F, of_plain) < 2e-3);
  }
}

TEST_CASE("a logit is scaled before it is capped") {
  CHECK(formed_logit({0.5F, 0}, 3) == 1.5F);
  CHECK(formed_logit({0.5F, 2}, 3) == Approx(2 * std::tanh(0.75)));
}

TEST_CASE("cross_entropy of equal logits is the logarithm of their number") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Loss loss(2, 8, 5, DType::f32);
    for (std::int64_t i = 0; i < 16; ++i) loss.logits.set(i, i % 8 < 5 ? 1000.0F : 5000.0F);
    loss.weight.set(0, 2);
    loss.weight.set(1, 0);
    CHECK(loss.loss(*kernels) == Approx(2 * std::log(5.0)).epsilon(1e-6));
    loss.gradient(*kernels);
    for (std::int64_t i = 0; i < 8; ++i) {
      const double expected = i >= 5 ? 0 : 2 * 0.125 * (i == 0 ? -0.8 : 0.2);
      CHECK(loss.logits.at(i) == Approx(expected).epsilon(1e-6));
      CHECK(loss.logits.at(8 + i) == 0);  // a token of weight 0
    }
  }
}

TEST_CASE("cross_entropy of two shards, combined, is that of the whole") {
  constexpr std::int64_t left = 6;
  Loss whole(4, 15, 15, DType::f32);
  const auto shard = [&](std::int64_t first, std::int64_t columns) {
    Loss part(4, columns, columns, DType::f32);
    for (std::int64_t i = 0; i < 4 * columns; ++i) {
      const std::int64_t at = i / columns * 15 + first + i % columns;
      part.logits.set(i, static_cast<float>(whole.logits.at(at)));
    }
    return part;
  };
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Loss expected = whole;
    expected.stats(*kernels);
    expected.gradient(*kernels);
    Loss low = shard(0, left);
    Loss high = shard(left, 15 - left);
    const auto run_stats = [&](Loss& part, std::int64_t first) {
      cross_entropy_stats(Host(*kernels).context(), {.logits = part.logits.tensor(),
                                                     .labels = whole.labels.tensor(),
                                                     .first_column = first,
                                                     .valid = part.valid,
                                                     .row_max = part.row_max.tensor(),
                                                     .row_sum = part.row_sum.tensor(),
                                                     .target = part.target.tensor()});
    };
    run_stats(low, 0);
    run_stats(high, left);
    for (std::int64_t row = 0; row < 4; ++row) {
      const double top = std::max(low.row_max.at(row), high.row_max.at(row));
      const double sum = low.row_sum.at(row) * std::exp(low.row_max.at(row) - top) +
                         high.row_sum.at(row) * std::exp(high.row_max.at(row) - top);
      low.row_max.set(row, static_cast<float>(top));
      low.row_sum.set(row, static_cast<float>(sum));
      low.target.set(row, static_cast<float>(low.target.at(row) + high.target.at(row)));
    }
    CHECK(difference(low.target, expected.target) == 0);
    CrossEntropyArgs args = low.gradient_args();
    args.labels = whole.labels.tensor();
    args.logits = high.logits.tensor();
    args.first_column = left;
    args.valid = high.valid;
    args.owns_loss = false;
    cross_entropy_gradient(Host(*kernels).context(), args);
    CHECK(low.state.loss_sum == 1);
    for (std::int64_t i = 0; i < high.logits.numel(); ++i) {
      const std::int64_t at = i / high.columns * 15 + left + i % high.columns;
      CHECK(high.logits.at(i) == Approx(expected.logits.at(at)).margin(1e-7));
    }
  }
}

TEST_CASE("cross_entropy shows infinities and NaNs and bears -inf") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Loss loss(1, 40, 40, DType::f32);
    loss.weight.set(0, 1);
    loss.logits.set(20, -INFINITY);
    CHECK(std::isfinite(loss.loss(*kernels)));
    Loss broken = loss;
    broken.logits.set(20, NAN);
    CHECK(!std::isfinite(broken.loss(*kernels)));
    broken.logits.set(20, INFINITY);
    CHECK(!std::isfinite(broken.loss(*kernels)));
    Loss none(1, 4, 4, DType::f32);
    none.valid = 0;
    none.stats(*kernels);
    CHECK(none.row_max.at(0) == -INFINITY);
    CHECK(none.row_sum.at(0) == 0);
  }
}

TEST_CASE("cross_entropy names what does not fit") {
  const Host host(tested_kernels());
  Loss loss(3, 5, 5, DType::f32);
  loss.valid = 6;
  CHECK(failure_of([&] { loss.stats(tested_kernels()); }) ==
        "[cross_entropy_stats] valid = 6 must be between 0 and the columns: logits [3, 5] fp32");
  loss.valid = 5;
  CrossEntropyArgs args = loss.gradient_args();
  Values shorter(Shape{2}, DType::f32);
  args.weight = shorter.tensor();
  CHECK(failure_of([&] { cross_entropy_gradient(host.context(), args); }) ==
        "[cross_entropy_gradient] weight must be an fp32 vector with one element per row of "
        "logits: logits [3, 5] fp32, weight [2] fp32");
  args = loss.gradient_args();
  args.labels = loss.weight.tensor();
  CHECK(starts_with(failure_of([&] { cross_entropy_gradient(host.context(), args); }),
                    "[cross_entropy_gradient] labels must be an i32 vector"));
  args = loss.gradient_args();
  args.state = nullptr;
  CHECK(failure_of([&] { cross_entropy_gradient(host.context(), args); }) ==
        "[cross_entropy_gradient] state must be given");
}

TEST_CASE("cross_entropy of a vocabulary in shards is that of the whole") {
  const std::int64_t rows = 9;
  const std::int64_t columns = 24;
  Values whole = Values::random(Shape{rows, columns}, DType::f32, 1);
  std::vector<std::int32_t> picked;
  for (std::int32_t i = 0; i < rows; ++i) picked.push_back(i * 5 % 21);
  Values labels = Values::of(picked);
  const auto stats_of = [&](const Kernels& kernels, Values& logits, std::int64_t first,
                            std::int64_t valid, const Tensor& stats) {
    const auto row = [&](std::int64_t i) { return stats.slice(i, i + 1).view({rows}); };
    cross_entropy_stats(Host(kernels).context(), {.logits = logits.tensor(),
                                                  .labels = labels.tensor(),
                                                  .first_column = first,
                                                  .valid = valid,
                                                  .row_max = row(0),
                                                  .row_sum = row(1),
                                                  .target = row(2)});
  };
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values expected(Shape{3, rows}, DType::f32);
    stats_of(*kernels, whole, 0, 21, expected.tensor());
    // Three shards of eight columns; the last has five real ones.
    Values shards(Shape{3, 3, rows}, DType::f32);
    for (std::int64_t shard = 0; shard < 3; ++shard) {
      Values part(Shape{rows, 8}, DType::f32);
      for (std::int64_t i = 0; i < rows * 8; ++i) {
        part.set(i, whole.at(i / 8 * columns + shard * 8 + i % 8));
      }
      const Tensor stats = shards.tensor().slice(shard, shard + 1).view({3, rows});
      stats_of(*kernels, part, shard * 8, shard == 2 ? 5 : 8, stats);
    }
    Values found(Shape{3, rows}, DType::f32);
    cross_entropy_combine(Host(*kernels).context(),
                          {.shards = shards.tensor(), .whole = found.tensor()});
    for (std::int64_t i = 0; i < 3 * rows; ++i) {
      CHECK(found.at(i) == Approx(expected.at(i)).epsilon(1e-5));
    }
  }
}

}  // namespace cross_entropy_test
