// Cross-entropy, the optimizers and what else comes once in a step.
#include <memory>

#include "bench/ops/op_bench.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/optimizer.h"
#include "ops/update_rules.h"

namespace trainctl {

namespace {

void add_cross_entropy(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const ModelShape& model = bench.sizes().model;
  const std::int64_t rows = bench.sizes().head_rows;
  const Tensor logits = bench.values("logits", {rows, model.padded_vocab});
  const Tensor labels =
      bench.filled<std::int32_t>("labels", {rows}, [vocab = model.vocab](std::int64_t i) {
        return static_cast<std::int32_t>(i * 7919 % vocab);
      });
  const Tensor weight =
      bench.filled<float>("loss_weight", {rows}, [](std::int64_t) { return 1.0F; });
  const Tensor stats = bench.values("head.stats", {3, rows}, DType::f32);
  const auto stat = [&](std::int64_t index) { return stats.slice(index, index + 1).view({rows}); };
  const CrossEntropyStats first{.logits = logits,
                                .labels = labels,
                                .valid = model.vocab,
                                .row_max = stat(0),
                                .row_sum = stat(1),
                                .target = stat(2)};
  bench.add("cross_entropy_stats", "", bytes_of({logits}), 0,
            [=] { cross_entropy_stats(*ops, first); });
  const Tensor shards = bench.values("head.shards", {2, 3, rows}, DType::f32);
  const Tensor whole = bench.zeros("head.whole", {3, rows}, DType::f32);
  bench.add("cross_entropy_combine", "", bytes_of({shards, whole}), 0,
            [=] { cross_entropy_combine(*ops, {.shards = shards, .whole = whole}); });
  const CrossEntropyGradient second{.logits = logits,
                                    .labels = labels,
                                    .valid = model.vocab,
                                    .row_max = first.row_max,
                                    .row_sum = first.row_sum,
                                    .target = first.target,
                                    .weight = weight,
                                    .state = bench.state("head.state")};
  bench.add("cross_entropy_gradient", "", 2 * bytes_of({logits}), 0,
            [=] { cross_entropy_gradient(*ops, second); });
}

/// The op with one call, which is placed at once.
template <class Args>
std::function<void()> calling(void (*op)(const OpContext&, const Calls<Args>&),
                              const OpContext* ops, const Args& args) {
  const auto calls = std::make_shared<const Calls<Args>>(std::vector{args}, ops->stream);
  return [=] { op(*ops, *calls); };
}

void add_optimizers(OpBench& bench) {
  const OpContext* ops = &bench.ops();
  const Shape shape{bench.sizes().parameters};
  const Tensor parameter = bench.values("parameter", shape, DType::f32);
  const Tensor gradient = bench.values("gradient", shape, DType::f32);
  const Tensor states[] = {bench.zeros("optimizer.0", shape, DType::f32),
                           bench.zeros("optimizer.1", shape, DType::f32)};
  const DType compute = bench.sizes().compute;
  const Tensor rounded = compute == DType::f32 ? Tensor{} : bench.zeros("rounded", shape, compute);
  const double rounded_bytes = rounded.empty() ? 0 : bytes_of({rounded});
  StepState* state = bench.state("optimizer.state");
  const Tensor factor = bench.filled<float>("factor", {1}, [](std::int64_t) { return 0.5F; });
  for (const UpdateRule rule : update_rules) {
    Update one{.rule = rule,
               .parameter = parameter,
               .gradient = gradient,
               .compute = rounded,
               .constants = {.momentum = 0.9F},
               .decay = true,
               .factor = static_cast<const float*>(factor.data),
               .state = state};
    // All are read and written, except the gradient, which is read.
    double bytes = bytes_of({gradient}) + 2 * bytes_of({parameter}) + rounded_bytes;
    const int kept = with_rule<float, false>(rule, []<class Rule>() { return Rule::states; });
    for (int i = 0; i < kept; ++i) {
      const auto k = static_cast<std::size_t>(i);
      one.states[k] = states[k];
      bytes += 2 * bytes_of({states[k]});
    }
    bench.add({.kernel = "update",
               .name = std::string(name_of(rule)),
               .bytes = bytes,
               .run = calling(update, ops, one)});
  }
  bench.add("scaled_sum", "", 2 * bytes_of({gradient}) + bytes_of({parameter}), 0, [=] {
    scaled_sum(*ops, {.x = gradient, .y = parameter, .z = gradient, .alpha = 0.5F, .beta = 0.5F});
  });
  const Tensor key = bench.zeros("key", {1}, DType::i32);
  bench.add("largest", "", bytes_of({gradient}), 0,
            [=] { largest(*ops, {.x = gradient, .key = key}); });
  bench.add("square_sum", "", bytes_of({gradient}), 0,
            calling(square_sum, ops, SquareSum{.x = gradient, .result = state->square_sums}));
  const Tensor sums = bench.filled<double>("square_sums", {1, 2}, [](std::int64_t) { return 1.0; });
  StepState* judged = bench.state("verdict.state");
  bench.add("step_verdict", "", bytes_of({sums}), 0,
            [=] { step_verdict(*ops, {.square_sums = sums, .limit = 1, .state = judged}); });
  bench.add("normal_fill", "", bytes_of({parameter}), 0,
            [=] { normal_fill(*ops, {.x = parameter, .seed = 1, .stream = 1}); });
}

}  // namespace

void add_step_cases(OpBench& bench) {
  add_cross_entropy(bench);
  add_optimizers(bench);
}

}  // namespace trainctl
