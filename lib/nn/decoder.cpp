#include "nn/decoder.h"

#include <algorithm>
#include <cassert>

#include "comm/self_group.h"
#include "nn/embedding.h"
#include "nn/stage.h"
#include "ops/cast.h"

namespace trainctl {

namespace {

constexpr std::int64_t chunk = 64;  // tokens that one pass handles at most

std::vector<SlabRow> cache_rows(const DecoderInput& input) {
  std::vector<SlabRow> rows;
  const Shape shape{input.model.positions, input.model.kv_features()};
  for (std::int64_t layer = 0; layer < input.model.layers; ++layer) {
    rows.push_back({"k" + std::to_string(layer), shape, input.compute});
    rows.push_back({"v" + std::to_string(layer), shape, input.compute});
  }
  rows.push_back({"logits", {1, input.model.padded_vocab}, input.compute});
  rows.push_back({"logits_fp32", {1, input.model.padded_vocab}, DType::f32});
  return rows;
}

/// The model as if its sequences were one chunk long, which sizes the working rows.
ModelShape chunked(ModelShape model) {
  model.seq_length = chunk;
  return model;
}

std::vector<SlabRow> work_rows(const DecoderInput& input) {
  const ModelShape model = chunked(input.model);
  const Mesh alone;
  std::vector<SlabRow> rows;
  for (const ActivationSpec& spec :
       make_activations({.model = model, .mesh = alone, .compute = input.compute},
                        {{0, static_cast<int>(model.layers) + 2}})) {
    if (spec.name.starts_with("head.") && spec.lifetime == Lifetime::transient) continue;
    rows.push_back({spec.name, spec.shape, spec.dtype});
  }
  return rows;
}

template <class Mlp>
class DecoderOf final : public Decoder {
 public:
  explicit DecoderOf(const DecoderInput& input)
      : model_(input.model),
        alone_(self_group("decoder")),
        embedding_(make_embedding(input.weights, input.model, {alone_.get()}, false)),
        final_norm_(make_norm(input.weights, "final_norm", input.model.family == Family::gpt2,
                              input.model.norm_epsilon)),
        head_(make_vocab_head(input.weights, input.model, {alone_.get()}, false, *alone_)),
        cache_(DeviceKind::cpu, cache_rows(input)),
        work_(DeviceKind::cpu, work_rows(input)) {
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
      blocks_.push_back(
          make_block<Mlp>(input.weights, model_, layer, input.rope_table, {alone_.get()}));
    }
  }

  std::span<const float> advance(const OpContext& ops,
                                 std::span<const std::int32_t> tokens) override {
    assert(!tokens.empty() && seen_ + static_cast<std::int64_t>(tokens.size()) <= capacity());
    for (std::size_t at = 0; at < tokens.size(); at += chunk) {
      pass(ops, tokens.subspan(at, std::min<std::size_t>(chunk, tokens.size() - at)));
    }
    const Tensor logits = cache_.at("logits");
    const Tensor wide = cache_.at("logits_fp32");
    cast(ops, {.x = logits, .y = wide});
    return {wide.as<float>(), static_cast<std::size_t>(model_.vocab)};
  }

  void reset() override { seen_ = 0; }
  std::int64_t seen() const override { return seen_; }
  std::int64_t capacity() const override { return model_.positions; }

 private:
  /// The first `tokens` tokens' part of a working row.
  Tensor row(const std::string& name, std::int64_t tokens) const {
    const Tensor whole = work_.at(name);
    return whole.slice(0, whole.shape[0] / chunk * tokens);
  }

  BlockSaved block_saved(std::int64_t layer, std::int64_t tokens) const {
    StageInput place;
    place.model = model_;
    place.units = {{0, static_cast<int>(model_.layers) + 2}};
    place.tp = {alone_.get()};
    place.activations = [&](int, const std::string& name) { return row(name, tokens); };
    BlockSaved saved = place_block(place, 0, layer);
    const std::string index = std::to_string(layer);
    const Tensor keys = cache_.at("k" + index);
    const Tensor values = cache_.at("v" + index);
    Attention::Saved& attention = saved.attention;
    attention.k = keys.slice(seen_, seen_ + tokens);
    attention.v = values.slice(seen_, seen_ + tokens);
    if (!model_.qk_norm) attention.k_raw = attention.k;
    attention.keys = keys.slice(0, seen_ + tokens);
    attention.values = values.slice(0, seen_ + tokens);
    attention.shape.query_length = tokens;
    attention.shape.key_length = seen_ + tokens;
    attention.shape.query_offset = seen_;
    return saved;
  }

  void pass(const OpContext& ops, std::span<const std::int32_t> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const Tensor ids = row("batch.tokens", count);
    const Tensor position = row("batch.position", count);
    std::copy(tokens.begin(), tokens.end(), ids.as<std::int32_t>());
    for (std::int64_t i = 0; i < count; ++i) {
      position.as<std::int32_t>()[i] = static_cast<std::int32_t>(seen_ + i);
    }
    const BatchTensors batch{.tokens = ids,
                             .labels = {},
                             .position = position,
                             .document = {},
                             .global_token = {},
                             .loss_weight = {}};
    const Pass pass{
        .ops = &ops, .state = nullptr, .batch = batch, .stream = batch, .training = false};
    const Tensor embedded = row("layers.0.input", count);
    embedding_.forward(pass, {embedded, embedded});
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
      blocks_[static_cast<std::size_t>(layer)].forward(pass, block_saved(layer, count));
    }
    const bool layernorm = model_.family == Family::gpt2;
    const Norm::Saved norm{row("head.input", count), row("head.norm", count),
                           layernorm ? row("head.norm.mean", count) : Tensor{},
                           row("head.norm.rstd", count)};
    final_norm_.forward(pass, norm);
    head_.logits(pass, norm.y.slice(count - 1, count), cache_.at("logits"));
    seen_ += count;
  }

  ModelShape model_;
  std::unique_ptr<Group> alone_;
  Embedding embedding_;
  std::vector<Block<Mlp>> blocks_;
  Norm final_norm_;
  VocabHead head_;
  Slab cache_;
  Slab work_;
  std::int64_t seen_ = 0;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const DecoderInput& input) {
  if (input.model.family == Family::gpt2) return std::make_unique<DecoderOf<GeluMlp>>(input);
  return std::make_unique<DecoderOf<SwigluMlp>>(input);
}

}  // namespace trainctl
