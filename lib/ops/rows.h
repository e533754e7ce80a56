// Rows on their way to experts and back. x, y: fp32, bf16 or fp16; F elements of a row; sums are
// taken in fp32.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

// spread:  y[slot[t, j]] = x[t]; a slot of -1 takes nothing
// collect: y[t] = sum over j of x[slot[t, j]]; a slot of -1 adds nothing. It is the gradient of
//          spread, and spread that of collect.
// scale:   y[r] = weight[r] x[r]; backward: dx[r] = weight[r] dy[r], d_weight[r] = dy[r] . x[r]
//          with sigmoid: s = sigmoid(weight[r]) instead of the weight, and d_weight[r] =
//          s (1 - s) dy[r] . x[r]
// bias:    y[r] += weight[r] bias; backward: d_bias += sum over r of weight[r] dy[r],
//          d_weight[r] += dy[r] . bias

struct SpreadRows {
  Tensor x;     // [T, F]
  Tensor slot;  // [T, k] i32: different rows of y, or -1
  Tensor y;     // [N, F]; rows that no slot names are not written
};

struct CollectRows {
  Tensor x;     // [N, F]
  Tensor slot;  // [T, k] i32
  Tensor y;     // [T, F], overwritten
};

struct ScaleRows {
  Tensor x;       // [R, F]
  Tensor weight;  // [R] fp32
  Tensor y;       // [R, F], overwritten; may be x
  bool sigmoid = false;
};

struct ScaleRowsBackward {
  Tensor x;
  Tensor weight;
  Tensor dy;        // [R, F]
  Tensor dx;        // overwritten; may be dy
  Tensor d_weight;  // [R] fp32, overwritten
  bool sigmoid = false;
};

struct BiasRows {
  Tensor y;       // [R, F], added to
  Tensor weight;  // [R] fp32
  Tensor bias;    // [F] fp32
};

struct BiasRowsBackward {
  Tensor dy;  // [R, F]
  Tensor weight;
  Tensor bias;
  Tensor d_bias;    // [F] fp32, added to
  Tensor d_weight;  // [R] fp32, added to; empty: another rank adds the bias
};

void spread_rows(const OpContext& context, const SpreadRows& args);
void collect_rows(const OpContext& context, const CollectRows& args);
void scale_rows(const OpContext& context, const ScaleRows& args);
void scale_rows_backward(const OpContext& context, const ScaleRowsBackward& args);
void bias_rows(const OpContext& context, const BiasRows& args);
void bias_rows_backward(const OpContext& context, const BiasRowsBackward& args);

}  // namespace trainctl
