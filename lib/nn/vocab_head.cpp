#include "nn/vocab_head.h"

#include <algorithm>

#include "nn/linear.h"
#include "ops/matmul.h"
#include "plan/model/ends.h"

namespace trainctl {

namespace {

/// The first `rows` columns' worth of a [.., 3, chunk] buffer, packed.
Tensor packed(const Tensor& buffer, Shape shape) {
  return buffer.view({buffer.numel()}).slice(0, shape.numel()).view(shape);
}

Tensor row_of(const Tensor& stats, std::int64_t row) {
  return stats.slice(row, row + 1).view({stats.columns()});
}

}  // namespace

void VocabHead::logits(const Pass& pass, const Tensor& x, const Tensor& logits) const {
  matmul(*pass.ops,
         {.a = x, .b = weight.value, .c = logits, .transpose_b = true, .varies = weight.rows_vary});
}

VocabHead::Chunk VocabHead::chunk_of(const Pass& pass, const Saved& saved,
                                     std::int64_t begin) const {
  const BatchTensors& batch = pass.tokens_of(split);
  const std::int64_t end = std::min(begin + saved.logits.rows(), saved.all_x.rows());
  const std::int64_t rows = end - begin;
  const bool keeps = pass.training && !saved.kept_stats.empty();
  return {.begin = begin,
          .end = end,
          .x = saved.all_x.slice(begin, end),
          .logits = saved.logits.slice(0, rows),
          .labels = batch.labels.slice(begin, end),
          .stats = keeps ? saved.kept_stats.slice(3 * begin, 3 * end).view({3, rows})
                         : packed(saved.stats, {3, rows}),
          .weight = batch.loss_weight.slice(begin, end)};
}

void VocabHead::gradient(const Pass& pass, const Chunk& chunk, bool counts_loss) const {
  cross_entropy_gradient(*pass.ops, {.logits = chunk.logits,
                                     .labels = chunk.labels,
                                     .first_column = first_row,
                                     .valid = vocab,
                                     .row_max = row_of(chunk.stats, 0),
                                     .row_sum = row_of(chunk.stats, 1),
                                     .target = row_of(chunk.stats, 2),
                                     .weight = chunk.weight,
                                     .forward_only = !pass.training,
                                     .owns_loss = counts_loss,
                                     .state = pass.state,
                                     .form = form});
}

void VocabHead::forward(const Pass& pass, const Saved& saved) const {
  enter.forward(pass, saved.x, saved.all_x);
  const std::int64_t tokens = saved.all_x.rows();
  for (std::int64_t begin = 0; begin < tokens; begin += saved.logits.rows()) {
    const Chunk chunk = chunk_of(pass, saved, begin);
    const Tensor all_stats = packed(saved.all_stats, {group->size(), 3, chunk.end - chunk.begin});
    logits(pass, chunk.x, chunk.logits);
    cross_entropy_stats(*pass.ops, {.logits = chunk.logits,
                                    .labels = chunk.labels,
                                    .first_column = first_row,
                                    .valid = vocab,
                                    .row_max = row_of(chunk.stats, 0),
                                    .row_sum = row_of(chunk.stats, 1),
                                    .target = row_of(chunk.stats, 2),
                                    .form = form});
    group->all_gather(chunk.stats, all_stats, *pass.ops->stream);
    cross_entropy_combine(*pass.ops, {.shards = all_stats, .whole = chunk.stats});
    gradient(pass, chunk, owns_loss);
    if (!pass.training) continue;
    matmul(*pass.ops, {.a = chunk.logits,
                       .b = weight.value,
                       .c = saved.partial_dx.slice(chunk.begin, chunk.end),
                       .varies = weight.rows_vary});
    if (saved.kept_stats.empty()) add_weight_gradient(pass, weight, chunk.logits, chunk.x);
  }
  if (pass.training) enter.backward(pass, saved.partial_dx, saved.dx);
}

void VocabHead::backward_weight(const Pass& pass, const Saved& saved) const {
  if (saved.kept_stats.empty()) return;  // done in F
  enter.forward(pass, saved.x, saved.all_x);
  const std::int64_t tokens = saved.all_x.rows();
  for (std::int64_t begin = 0; begin < tokens; begin += saved.logits.rows()) {
    const Chunk chunk = chunk_of(pass, saved, begin);
    logits(pass, chunk.x, chunk.logits);
    gradient(pass, chunk, false);
    add_weight_gradient(pass, weight, chunk.logits, chunk.x);
  }
}

LogitForm logit_form(const ModelShape& model) {
  return {static_cast<float>(model.logit_scale), static_cast<float>(model.logit_cap)};
}

VocabHead make_vocab_head(const WeightSource& weights, const ModelShape& model,
                          const TensorParallel& tp, SplitBy split, Group& alone) {
  VocabHead layer;
  layer.weight = weights(model.tied ? "embedding.token.weight" : "head.weight");
  const std::int64_t rows = layer.weight.value.rows();
  layer.group = split == SplitBy::features ? tp.group : &alone;
  layer.first_row = layer.group->rank() * rows;
  layer.vocab = std::clamp<std::int64_t>(model.vocab - layer.first_row, 0, rows);
  layer.split = split;
  layer.form = logit_form(model);
  layer.owns_loss = split == SplitBy::tokens || tp.group->rank() == 0;
  layer.enter = tp.along(head_exchange(tp.stream, split));
  return layer;
}

}  // namespace trainctl
