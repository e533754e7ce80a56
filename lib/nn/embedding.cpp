#include "nn/embedding.h"

#include "ops/add.h"
#include "ops/dropout.h"
#include "ops/embedding.h"
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

void Embedding::forward(const Pass& pass, const Saved& saved) const {
  embedding_forward(*pass.ops, {.indices = pass.tokens_of(split).tokens,
                                .table = token.value,
                                .first_row = first_row,
                                .y = saved.all_y});
  leave.forward(pass, saved.all_y, saved.y);
  scale(*this, pass, saved.y);
  if (!position.empty()) {
    embedding_forward(*pass.ops, {.indices = pass.stream.position,
                                  .table = position.value,
                                  .y = saved.y,
                                  .accumulate = true});
  }
  drop(*this, pass, saved.y);
  if (pass.dropped && pass.training && dropout > 0) pass.dropped(embedding_site, dropout, saved.y);
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
  if (model.position_kind == PositionKind::learned) {
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

}  // namespace trainctl
