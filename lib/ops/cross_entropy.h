// Softmax cross-entropy in two passes over a chunk of logits; ranks that hold parts of the
// vocabulary combine max and sum between the two. Columns from `valid` on are padding: -inf. In all
// of them z = LogitForm of a stored logit. Stats: row_max = max(z), row_sum = sum exp(z - row_max),
// target = z[label]; combined, they are those of the whole row. Gradient, in place: dlogits =
// (exp(z - logsumexp) - [label]) * dz * weight * loss_factor * loss_scale; loss_sum += sum weight *
// (logsumexp - target).
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

/// z = cap tanh(scale x / cap), or scale x without a cap (0); dz = scale (1 - (z / cap)^2).
struct LogitForm {
  float scale = 1;
  float cap = 0;
  bool is_plain() const { return scale == 1 && cap == 0; }
  bool operator==(const LogitForm&) const = default;
};

struct CrossEntropyArgs {
  Tensor logits;                  // [rows, columns] fp32, bf16 or fp16; then their gradient
  Tensor labels;                  // [rows] i32; a label outside this shard leaves target = 0
  std::int64_t first_column = 0;  // global index of column 0
  std::int64_t valid = 0;         // columns of this shard that are real
  // [rows] fp32, overwritten by the first pass; the second takes them combined over the shards.
  Tensor row_max, row_sum, target;
  // Only the second pass takes these.
  Tensor weight{};             // [rows] fp32: the token's weight in the loss
  bool forward_only = false;   // leave the logits alone, only add to the loss
  bool owns_loss = true;       // false on all but one of the ranks that share the vocabulary
  StepState* state = nullptr;  // reads the two factors, adds to loss_sum
  LogitForm form{};
};

struct CrossEntropyCombine {
  Tensor shards;  // [ranks, 3, rows] fp32: row_max, row_sum and target of each shard
  Tensor whole;   // [3, rows] fp32, overwritten; may be the first shard's memory
};

/// z of a logit on the host.
float formed_logit(const LogitForm& form, float logit);

void cross_entropy_stats(const OpContext& context, const CrossEntropyArgs& args);
/// In rank order, so that all ranks get the same bits.
void cross_entropy_combine(const OpContext& context, const CrossEntropyCombine& args);
void cross_entropy_gradient(const OpContext& context, const CrossEntropyArgs& args);

}  // namespace trainctl
