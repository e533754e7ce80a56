#include "bench/op_cost.h"

#include <algorithm>

namespace trainctl {

namespace {

OpCost moves(std::initializer_list<Tensor> tensors) { return {.bytes = bytes_of(tensors)}; }

OpCost sum(const OpCost& one, const OpCost& other) {
  return {one.bytes + other.bytes, one.flops + other.flops};
}

/// What is read and written of a tensor that is added to.
double twice(const Tensor& tensor) { return 2 * bytes_of({tensor}); }

template <class Args, class Cost>
OpCost of_all(const Calls<Args>& calls, const Cost& cost) {
  OpCost all;
  for (const Args& args : calls.list()) all = sum(all, cost(args));
  return all;
}

/// Rows that tokens name, of which each is read or written where it is one.
double named_rows(const Tensor& slot, const Tensor& rows) {
  const double width = static_cast<double>(rows.columns() * size_of(rows.dtype));
  return width * static_cast<double>(slot.numel());
}

}  // namespace

double bytes_of(std::initializer_list<Tensor> tensors) {
  double total = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.empty()) total += static_cast<double>(tensor.bytes());
  }
  return total;
}

double flops_of(const MatmulShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

double attention_product_flops(const AttentionShape& shape) {
  const auto queries = static_cast<double>(shape.query_length);
  const auto keys = static_cast<double>(shape.key_length);
  // A rank that has some of the keys sees as large a share of the pairs.
  const double pairs = static_cast<double>(shape.sequences * shape.heads) *
                       std::min(queries, keys) * (std::max(queries, keys) + 1) / 2;
  return 2 * pairs * static_cast<double>(shape.head_dim);
}

OpCost cost_of(const Matmul& args) {
  const double result = args.accumulate ? twice(args.c) : bytes_of({args.c});
  return {bytes_of({args.a, args.b, args.bias}) + result, flops_of(shape_of(args))};
}
OpCost cost_of(const MatmulGelu& args) { return sum(cost_of(args.up), moves({args.act})); }
OpCost cost_of(const MatmulGeluBackward& args) { return sum(cost_of(args.dx), moves({args.x})); }
OpCost cost_of(const MatmulColumnSums& args) {
  return sum(cost_of(args.product), {.bytes = twice(args.sums)});
}
OpCost cost_of(const MatmulBatch& args) {
  OpCost all;
  for (const MatmulBatch::One& one : args.list) {
    all = sum(all, sum(cost_of(one.product), {.bytes = twice(one.sums)}));
  }
  return all;
}

OpCost cost_of(const NormForward& args) {
  const Tensor written = args.residual.empty() ? Tensor{} : args.sum;
  return moves({args.x, args.residual, written, args.y, args.mean, args.rstd});
}
OpCost cost_of(const NormBackward& args) {
  return moves({args.dy, args.x, args.d_residual, args.dx, args.mean, args.rstd});
}
OpCost cost_of(const NormSums& args) { return moves({args.x, args.dy, args.sums}); }

OpCost cost_of(const ActivationForward& args) { return moves({args.x, args.up, args.y}); }
OpCost cost_of(const ActivationBackward& args) {
  return moves({args.x, args.up, args.dy, args.dx, args.dup});
}
OpCost cost_of(const Add& args) { return moves({args.a, args.b, args.y}); }
OpCost cost_of(const ScaledSum& args) { return moves({args.x, args.y, args.z}); }
OpCost cost_of(const Largest& args) { return moves({args.x}); }
OpCost cost_of(const CopyRows& args) {
  return {.bytes = 2.0 * static_cast<double>(args.rows * args.length * size_of(args.x.dtype))};
}
OpCost cost_of(const Cast& args) { return moves({args.x, args.y}); }
OpCost cost_of(const BiasGradient& args) { return {.bytes = bytes_of({args.dy}) + twice(args.db)}; }
OpCost cost_of(const Dropout& args) { return {.bytes = twice(args.x)}; }
OpCost cost_of(const Rope& args) { return {.bytes = twice(args.x)}; }

OpCost cost_of(const AttentionForward& args) {
  return {bytes_of({args.q, args.k, args.v, args.out, args.logsumexp}),
          2 * attention_product_flops(args.shape)};
}
OpCost cost_of(const AttentionBackward& args) {
  return {bytes_of({args.q, args.k, args.v, args.out, args.d_out, args.dq, args.dk, args.dv}),
          5 * attention_product_flops(args.shape)};
}
OpCost cost_of(const AttentionMerge& args) {
  return {.bytes = twice(args.out) + bytes_of({args.other})};
}
OpCost cost_of(const AttentionSinkForward& args) {
  return {.bytes = twice(args.out) + twice(args.logsumexp)};
}
OpCost cost_of(const AttentionSinkBackward& args) {
  return moves({args.out, args.logsumexp, args.d_out});
}

OpCost cost_of(const EmbeddingForward& args) {
  const double written = args.accumulate ? twice(args.y) : bytes_of({args.y});
  return {.bytes = written + bytes_of({args.y})};
}
OpCost cost_of(const EmbeddingBackward& args) {
  const double rows = static_cast<double>(args.dy.numel()) * size_of(args.dtable.dtype);
  return {.bytes = bytes_of({args.dy}) + 2 * rows};
}

OpCost cost_of(const RouterForward& args) {
  return moves({args.logits, args.chosen, args.weight, args.slot});
}
OpCost cost_of(const RouterBackward& args) {
  return moves({args.logits, args.chosen, args.d_weight, args.d_logits});
}
OpCost cost_of(const RouterLosses& args) {
  return {.bytes = bytes_of({args.logits, args.chosen}) + twice(args.d_logits)};
}
OpCost cost_of(const RouterStatistics& args) { return moves({args.logits, args.chosen}); }

OpCost cost_of(const SpreadRows& args) {
  return {.bytes = bytes_of({args.x}) + named_rows(args.slot, args.y)};
}
OpCost cost_of(const CollectRows& args) {
  return {.bytes = named_rows(args.slot, args.x) + bytes_of({args.y})};
}
OpCost cost_of(const ScaleRows& args) { return moves({args.x, args.y}); }
OpCost cost_of(const ScaleRowsBackward& args) { return moves({args.x, args.dy, args.dx}); }
OpCost cost_of(const BiasRows& args) { return {.bytes = twice(args.y)}; }
OpCost cost_of(const BiasRowsBackward& args) { return moves({args.dy}); }

OpCost cost_of(const CrossEntropyStats& args) { return moves({args.logits}); }
OpCost cost_of(const CrossEntropyCombine& args) { return moves({args.shards, args.whole}); }
OpCost cost_of(const CrossEntropyGradient& args) {
  return {.bytes = args.forward_only ? bytes_of({args.target}) : twice(args.logits)};
}

OpCost cost_of(const Calls<Update>& args) {
  return of_all(args, [](const Update& one) {
    const double kept = twice(one.parameter) + twice(one.states[0]) + twice(one.states[1]);
    return OpCost{.bytes = kept + bytes_of({one.gradient, one.compute})};
  });
}
OpCost cost_of(const Calls<SquareSum>& args) {
  return of_all(args, [](const SquareSum& one) { return moves({one.x}); });
}
OpCost cost_of(const StepVerdict& args) { return moves({args.square_sums}); }
OpCost cost_of(const NormalFill& args) { return moves({args.x}); }
OpCost cost_of(const SwapBlocks& args) { return moves({args.x, args.y}); }

}  // namespace trainctl
