#include "nn/ends.h"

#include <algorithm>

#include "nn/linear.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/rows.h"
#include "plan/model/ends.h"

namespace trainctl {

namespace {

constexpr std::int64_t embedding_site = 0;

void drop(const Embedding& layer, const Pass& pass, const Tensor& x) {
  if (!pass.training || layer.dropout == 0) return;
  dropout(*pass.ops,
          {.x = x,
           .global_token = pass.stream.global_token,
           .first_feature = 0,
           .features = x.columns(),
           .key = {.state = pass.state, .site = embedding_site, .probability = layer.dropout}});
}

void scale(const Embedding& layer, const Pass& pass, const Tensor& x) {
  if (layer.factor != 1) add(*pass.ops, {.a = {}, .b = x, .y = x, .factor = layer.factor});
}

}  // namespace

void Embedding::forward(const Pass& pass, const Tensor& y, const Tensor& all_y) const {
  embedding_forward(*pass.ops, {.indices = pass.tokens_of(split).tokens,
                                .table = token.value,
                                .first_row = first_row,
                                .y = all_y});
  leave.forward(pass, all_y, y);
  scale(*this, pass, y);
  if (!position.empty()) {
    embedding_forward(
        *pass.ops,
        {.indices = pass.stream.position, .table = position.value, .y = y, .accumulate = true});
  }
  drop(*this, pass, y);
  if (pass.dropped && pass.training && dropout > 0) pass.dropped(embedding_site, dropout, y);
}

void Embedding::backward(const Pass& pass, const Tensor& dy, const Tensor& all_dy) const {
  drop(*this, pass, dy);
  if (!position.empty()) {
    embedding_backward(*pass.ops,
                       {.indices = pass.stream.position, .dy = dy, .dtable = position.gradient});
  }
  scale(*this, pass, dy);
  leave.backward(pass, dy, all_dy);
  embedding_backward(*pass.ops, {.indices = pass.tokens_of(split).tokens,
                                 .first_row = first_row,
                                 .dy = all_dy,
                                 .dtable = token.gradient});
}

Embedding make_embedding(const WeightSource& weights, const ModelShape& model,
                         const TensorParallel& tp, SplitBy split) {
  Embedding layer;
  layer.token = weights("embedding.token.weight");
  if (model.learned_positions) {
    layer.position = weights("embedding.position.weight");
  }
  const bool cut = split == SplitBy::features;
  layer.first_row = cut ? tp.group->rank() * layer.token.value.rows() : 0;
  layer.split = split;
  layer.leave = tp.along(embedding_exchange(tp.stream, split));
  layer.dropout = static_cast<float>(model.embedding_dropout);
  layer.factor = static_cast<float>(model.embedding_multiplier);
  return layer;
}

namespace {

/// View of the first elements of `buffer`, with a smaller shape for a chunk with fewer tokens.
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

struct VocabHead::Chunk {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  Tensor x, stats, weight;
  CrossEntropyArgs loss;  // arguments of the first pass
};

VocabHead::Chunk VocabHead::chunk_of(const Pass& pass, const Saved& saved,
                                     std::int64_t begin) const {
  const BatchTensors& batch = pass.tokens_of(split);
  const std::int64_t end = std::min(begin + saved.logits.rows(), saved.all_x.rows());
  const std::int64_t rows = end - begin;
  const bool keeps = pass.training && !saved.kept_stats.empty();
  const Tensor stats = keeps ? saved.kept_stats.slice(3 * begin, 3 * end).view({3, rows})
                             : packed(saved.stats, {3, rows});
  return {.begin = begin,
          .end = end,
          .x = saved.all_x.slice(begin, end),
          .stats = stats,
          .weight = batch.loss_weight.slice(begin, end),
          .loss = {.logits = saved.logits.slice(0, rows),
                   .labels = batch.labels.slice(begin, end),
                   .first_column = first_row,
                   .valid = vocab,
                   .row_max = row_of(stats, 0),
                   .row_sum = row_of(stats, 1),
                   .target = row_of(stats, 2),
                   .form = form}};
}

void VocabHead::gradient(const Pass& pass, const Chunk& chunk, bool counts_loss) const {
  CrossEntropyArgs args = chunk.loss;
  args.weight = chunk.weight;
  args.forward_only = !pass.training;
  args.owns_loss = counts_loss;
  args.state = pass.state;
  cross_entropy_gradient(*pass.ops, args);
}

void VocabHead::forward(const Pass& pass, const Saved& saved) const {
  enter.forward(pass, saved.x, saved.all_x);
  const std::int64_t tokens = saved.all_x.rows();
  for (std::int64_t begin = 0; begin < tokens; begin += saved.logits.rows()) {
    const Chunk chunk = chunk_of(pass, saved, begin);
    const Tensor all_stats = packed(saved.all_stats, {group->size(), 3, chunk.end - chunk.begin});
    logits(pass, chunk.x, chunk.loss.logits);
    cross_entropy_stats(*pass.ops, chunk.loss);
    group->all_gather(chunk.stats, all_stats, *pass.ops->stream);
    cross_entropy_combine(*pass.ops, {.shards = all_stats, .whole = chunk.stats});
    gradient(pass, chunk, owns_loss);
    if (!pass.training) continue;
    matmul(*pass.ops, {.a = chunk.loss.logits,
                       .b = weight.value,
                       .c = saved.partial_dx.slice(chunk.begin, chunk.end),
                       .varies = weight.rows_vary});
    if (saved.kept_stats.empty()) add_weight_gradient(pass, weight, chunk.loss.logits, chunk.x);
  }
  if (pass.training) enter.backward(pass, saved.partial_dx, saved.dx);
}

void VocabHead::backward_weight(const Pass& pass, const Saved& saved) const {
  if (saved.kept_stats.empty()) return;  // forward has added the gradient
  enter.forward(pass, saved.x, saved.all_x);
  const std::int64_t tokens = saved.all_x.rows();
  for (std::int64_t begin = 0; begin < tokens; begin += saved.logits.rows()) {
    const Chunk chunk = chunk_of(pass, saved, begin);
    logits(pass, chunk.x, chunk.loss.logits);
    gradient(pass, chunk, false);
    add_weight_gradient(pass, weight, chunk.loss.logits, chunk.x);
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
