#include "nn/vocab_head.h"

#include <algorithm>

#include "ops/cross_entropy.h"
#include "ops/matmul.h"

namespace trainctl {

void VocabHead::logits(const Pass& pass, const Tensor& x, const Tensor& logits) const {
  matmul(*pass.ops, {.a = x, .b = weight.value, .c = logits, .transpose_b = true});
}

void VocabHead::forward(const Pass& pass, const Saved& saved) const {
  const std::int64_t tokens = saved.x.rows();
  const std::int64_t chunk = saved.logits.rows();
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, tokens);
    const std::int64_t rows = end - begin;
    const Tensor x = saved.x.slice(begin, end);
    const Tensor chunk_logits = saved.logits.slice(0, rows);
    const Tensor labels = pass.batch.labels.slice(begin, end);
    const Tensor row_max = saved.row_max.slice(0, rows);
    const Tensor row_sum = saved.row_sum.slice(0, rows);
    const Tensor target = saved.target.slice(0, rows);
    logits(pass, x, chunk_logits);
    cross_entropy_stats(*pass.ops, {.logits = chunk_logits,
                                    .labels = labels,
                                    .valid = vocab,
                                    .row_max = row_max,
                                    .row_sum = row_sum,
                                    .target = target});
    cross_entropy_gradient(*pass.ops, {.logits = chunk_logits,
                                       .labels = labels,
                                       .valid = vocab,
                                       .row_max = row_max,
                                       .row_sum = row_sum,
                                       .target = target,
                                       .weight = pass.batch.loss_weight.slice(begin, end),
                                       .forward_only = !pass.training,
                                       .state = pass.state});
    if (!pass.training) continue;
    matmul(*pass.ops, {.a = chunk_logits, .b = weight.value, .c = saved.d_x.slice(begin, end)});
    matmul(
        *pass.ops,
        {.a = chunk_logits, .b = x, .c = weight.gradient, .transpose_a = true, .accumulate = true});
  }
}

VocabHead make_vocab_head(const WeightSource& weights, const ModelShape& model) {
  return {weights(model.tied ? "embedding.token.weight" : "head.weight"), model.vocab};
}

}  // namespace trainctl
