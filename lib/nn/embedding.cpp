#include "nn/embedding.h"

#include "ops/dropout.h"
#include "ops/embedding.h"

namespace trainctl {

namespace {

constexpr std::int64_t embedding_site = 0;

void drop(const Embedding& layer, const Pass& pass, const Tensor& x) {
  if (!pass.training || layer.dropout == 0) return;
  dropout(*pass.ops,
          {.x = x,
           .global_token = pass.batch.global_token,
           .first_feature = 0,
           .features = x.columns(),
           .key = {.state = pass.state, .site = embedding_site, .probability = layer.dropout}});
}

}  // namespace

void Embedding::forward(const Pass& pass, const Tensor& y) const {
  embedding_forward(*pass.ops, {.tokens = pass.batch.tokens,
                                .table = token.value,
                                .position = position.empty() ? Tensor{} : pass.batch.position,
                                .position_table = position.value,
                                .y = y});
  drop(*this, pass, y);
}

void Embedding::backward(const Pass& pass, const Tensor& dy) const {
  drop(*this, pass, dy);
  embedding_backward(*pass.ops, {.tokens = pass.batch.tokens,
                                 .position = position.empty() ? Tensor{} : pass.batch.position,
                                 .dy = dy,
                                 .dtable = token.gradient,
                                 .dposition_table = position.gradient});
}

Embedding make_embedding(const WeightSource& weights, const ModelShape& model) {
  Embedding layer;
  layer.token = weights("embedding.token.weight");
  if (model.family == Family::gpt2) layer.position = weights("embedding.position.weight");
  layer.dropout = static_cast<float>(model.embedding_dropout);
  return layer;
}

}  // namespace trainctl
