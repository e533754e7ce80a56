// Softmax cross-entropy in two passes over a chunk of logits. Ranks with parts of the vocabulary
// combine max and sum between the passes. Columns from `valid` on are padding, treated as -inf. In
// all formulas z is the LogitForm of a stored logit. Stats: row_max = max(z), row_sum = sum exp(z -
// row_max), target = z[label]; combined stats are for the whole row. Gradient, in place: dlogits =
// (exp(z - logsumexp) - [label]) * dz * weight * loss_factor * loss_scale; loss_sum += sum weight *
// (logsumexp - target).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

/// z = cap tanh(scale x / cap), or scale x if cap is 0; dz = scale (1 - (z / cap)^2).
struct LogitForm {
  float scale = 1;
  float cap = 0;
  bool is_plain() const { return scale == 1 && cap == 0; }
  bool operator==(const LogitForm&) const = default;
};

struct CrossEntropyArgs {
  Tensor logits;                  // [rows, columns] fp32, bf16 or fp16; then their gradient
  Tensor labels;                  // [rows] i32; target is 0 if the label is outside this shard
  std::int64_t first_column = 0;  // global index of column 0
  std::int64_t valid = 0;         // columns of this shard without padding
  // [rows] fp32, overwritten by the first pass; the second takes them combined over the shards.
  Tensor row_max, row_sum, target;
  // Only the second pass takes these.
  Tensor weight{};             // [rows] fp32: the token's weight in the loss
  bool forward_only = false;   // do not write the gradient, only add to the loss
  bool owns_loss = true;       // true on one of the ranks that share the vocabulary
  StepState* state = nullptr;  // its two factors are read, loss_sum is added to
  LogitForm form{};
};

struct CrossEntropyCombine {
  Tensor shards;  // [ranks, 3, rows] fp32: row_max, row_sum, target of each shard
  Tensor whole;   // [3, rows] fp32, overwritten; may be the first shard's memory
};

/// Computes z of a logit, on the host.
float formed_logit(const LogitForm& form, float logit);

void cross_entropy_stats(const OpContext& context, const CrossEntropyArgs& args);
/// Combines the shards in rank order, so that all ranks get bit-identical results.
void cross_entropy_combine(const OpContext& context, const CrossEntropyCombine& args);
void cross_entropy_gradient(const OpContext& context, const CrossEntropyArgs& args);

}  // namespace trainctl
