#include "nn/decoder.h"

#include <algorithm>
#include <cassert>

#include "base/at.h"
#include "comm/self_group.h"
#include "nn/embedding.h"
#include "nn/stage.h"
#include "ops/cast.h"

namespace trainctl {

namespace {

constexpr std::int64_t pass_tokens = 64;  // tokens that one pass handles at most

std::vector<UnitRange> units_of(const DecoderInput& input) {
  return input.units.empty() ? std::vector{all_units(input.model.layers)} : input.units;
}

int stage_of(const DecoderInput& input) { return input.pp != nullptr ? input.pp->rank() : 0; }

std::vector<SlabRow> cache_rows(const DecoderInput& input) {
  std::vector<SlabRow> rows;
  const ModelShape& model = input.model;
  const auto sizes = [&](int unit) {
    return local_shape({.model = model,
                        .mesh = input.mesh,
                        .head = input.splits.head,
                        .block = input.splits.of_unit(unit)});
  };
  for (const UnitRange& range : units_of(input)) {
    const UnitRange blocks = blocks_in(range, model.layers);
    for (int unit = blocks.begin; unit < blocks.end; ++unit) {
      const Shape shape{model.positions, sizes(unit).kv};
      rows.push_back({"k" + std::to_string(unit - 1), shape, input.compute});
      rows.push_back({"v" + std::to_string(unit - 1), shape, input.compute});
    }
  }
  rows.push_back({"own_logits", {1, sizes(0).vocabulary}, input.compute});
  rows.push_back({"logits", {1, model.padded_vocab}, input.compute});
  rows.push_back({"logits_fp32", {1, model.padded_vocab}, DType::f32});
  return rows;
}

/// What one pass takes is one routing group without a limit: nothing else may depend on how the
/// tokens come.
ModelShape unlimited(ModelShape model) {
  model.routing_group = 0;
  model.capacity_factor = 0;
  return model;
}

/// The model as if its sequences were one pass long, which sizes the working rows.
ModelShape one_pass_long(ModelShape model) {
  model.seq_length = pass_tokens;
  return unlimited(model);
}

std::vector<SlabRow> work_rows(const DecoderInput& input) {
  const ModelShape model = one_pass_long(input.model);
  std::vector<SlabRow> rows;
  for (const ActivationSpec& spec : make_activations({.model = model,
                                    .mesh = input.mesh,
                                    .compute = input.compute,
                                    .splits = input.splits,
                                    .places = input.places,
                                    .stage = stage_of(input)},
                                                     units_of(input))) {
    // Nothing goes backward, and the head has only one token.
    const bool of_head = spec.storage == Storage::shared && spec.name.starts_with("head.");
    if (of_head || spec.from == Moment::gradient || spec.from == Moment::backward) continue;
    rows.push_back({spec.name, spec.shape, spec.dtype});
  }
  return rows;
}

class DecoderOf final : public Decoder {
 public:
  explicit DecoderOf(const DecoderInput& input)
      : model_(unlimited(input.model)),
        units_(units_of(input)),
        places_(input.places),
        stage_(stage_of(input)),
        splits_(input.splits),
        alone_(self_group("decoder")),
        tp_{input.tp != nullptr ? input.tp : alone_.get()},
        pp_(input.pp != nullptr ? input.pp : alone_.get()),
        cache_(DeviceKind::cpu, cache_rows(input)),
        work_(DeviceKind::cpu, work_rows(input)) {
    if (holds(0)) embedding_ = make_embedding(input.weights, model_, tp_, splits_.embedding);
    for (const UnitRange& range : units_) {
      const UnitRange blocks = blocks_in(range, model_.layers);
      for (int unit = blocks.begin; unit < blocks.end; ++unit) {
        blocks_.push_back(make_block({input.weights,
                                      model_,
                                      input.rope_table,
                                      {.tp = tp_, .split = splits_.of_unit(unit)},
                                      {.ep = alone_.get()}},
                                     unit - 1));
      }
    }
    if (!holds(head_unit(model_.layers))) return;
    final_norm_ = make_norm(input.weights, "final_norm", model_.norm_kind, model_.norm_epsilon);
    head_ = make_vocab_head(input.weights, model_, tp_, splits_.head, *alone_);
  }

  std::span<const float> advance(const OpContext& ops,
                                 std::span<const std::int32_t> tokens) override {
    assert(!tokens.empty() && seen_ + static_cast<std::int64_t>(tokens.size()) <= capacity());
    for (std::size_t at = 0; at < tokens.size(); at += pass_tokens) {
      pass(ops, tokens.subspan(at, std::min<std::size_t>(pass_tokens, tokens.size() - at)));
    }
    if (!holds(head_unit(model_.layers))) return {};
    const Tensor logits = cache_.at("logits");
    const Tensor wide = cache_.at("logits_fp32");
    head_.group->all_gather(cache_.at("own_logits"), logits, *ops.stream);
    cast(ops, {.x = logits, .y = wide});
    return {wide.as<float>(), static_cast<std::size_t>(model_.vocab)};
  }

  void reset() override { seen_ = 0; }
  std::int64_t seen() const override { return seen_; }
  std::int64_t capacity() const override { return model_.positions; }

 private:
  bool holds(int unit) const { return trainctl::holds(units_, unit); }

  /// The first `tokens` tokens' part of a working row.
  Tensor row(const std::string& name, std::int64_t tokens) const {
    const Tensor whole = work_.at(name);
    if (whole.shape[0] % pass_tokens != 0) return whole;  // not of tokens: an expert's count
    return whole.slice(0, whole.shape[0] / pass_tokens * tokens);
  }

  BlockSaved block_saved(std::int64_t layer, std::int64_t tokens) const {
    StageInput place;
    place.model = model_;
    place.units = units_;
    place.places = places_;
    place.stage = stage_;
    place.tp = tp_;
    place.splits = splits_;
    place.activations = [&](int, const std::string& name) { return row(name, tokens); };
    BlockSaved saved = place_block(place, 0, layer);
    const std::string index = std::to_string(layer);
    const Tensor keys = cache_.at("k" + index);
    const Tensor values = cache_.at("v" + index);
    Attention::Saved& attention = saved.attention;
    attention.k = keys.slice(seen_, seen_ + tokens);
    attention.v = values.slice(seen_, seen_ + tokens);
    if (!model_.qk_norm) attention.k_raw = attention.k;
    attention.queries = attention.q;
    attention.keys = keys.slice(0, seen_ + tokens);
    attention.values = values.slice(0, seen_ + tokens);
    attention.shape.query_length = tokens;
    attention.shape.key_length = seen_ + tokens;
    attention.shape.query_offset = seen_;
    return saved;
  }

  /// The rows that a chunk of this stage reads; `tokens` are those of all stages.
  BatchTensors fill_batch(int number, std::span<const std::int32_t> tokens) const {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const bool first = at(units_, number).holds(0);
    const std::string prefix = chunk_prefix(number) + "batch.";
    const Tensor ids = first ? row(prefix + "tokens", count) : Tensor{};
    const Tensor position = row(prefix + "position", count);
    if (first) std::copy(tokens.begin(), tokens.end(), ids.as<std::int32_t>());
    for (std::int64_t i = 0; i < count; ++i) {
      position.as<std::int32_t>()[i] = static_cast<std::int32_t>(seen_ + i);
    }
    return {.tokens = ids,
            .labels = {},
            .position = position,
            .global_token = {},
            .loss_weight = {},
            .first_position = {},
            .query_token = {}};
  }

  /// The chunks in turn, with the messages around them.
  void pass(const OpContext& ops, std::span<const std::int32_t> tokens) {
    std::size_t block = 0;  // of this stage
    for (int number = 0; number < places_.chunks; ++number) {
      pass_chunk(ops, number, tokens, block);
    }
    seen_ += static_cast<std::int64_t>(tokens.size());
  }

  void pass_chunk(const OpContext& ops, int number, std::span<const std::int32_t> tokens,
                  std::size_t& block) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const UnitRange& units = at(units_, number);
    const BatchTensors batch = fill_batch(number, tokens);
    const Pass pass{
        .ops = &ops, .state = nullptr, .batch = batch, .stream = batch, .training = false};
    const bool first = units.begin == 0 && !units.empty();
    const Tensor input = first ? Tensor{} : row(between().input(number), count);
    if (places_.receives(stage_, number)) {
      const ChunkAt from = *places_.before(stage_, number);
      ops.stream->wait(pp_->receive(input, from.stage, number, *ops.stream));
    }
    for (int unit = units.begin; unit < units.end; ++unit) {
      if (unit == 0) {
        const Tensor embedded = row(between().output_of(number, 0), count);
        embedding_.forward(pass, {embedded, embedded});
      } else if (unit == head_unit(model_.layers)) {
        head(pass, count);
      } else {
        at(blocks_, block++).forward(pass, block_saved(unit - 1, count));
      }
    }
    const auto to = places_.after(stage_, number);
    if (!to) return;
    const Tensor output = row(between().output(number), count);
    if (units.empty()) ops.stream->copy(output, input);
    if (!places_.sends(stage_, number)) return;
    ops.stream->wait(pp_->send(output, to->stage, to->chunk, *ops.stream));
  }

  ChunkRows between() const { return {places_, stage_, units_, model_.layers}; }

  void head(const Pass& pass, std::int64_t count) const {
    const bool has_mean = model_.norm_kind == NormKind::layer_norm;
    const Norm::Saved norm{row("head.input", count), row("head.norm", count),
                           has_mean ? row("head.norm.mean", count) : Tensor{},
                           row("head.norm.rstd", count)};
    final_norm_.forward(pass, norm);
    head_.logits(pass, norm.y.slice(count - 1, count), cache_.at("own_logits"));
  }

  ModelShape model_;
  std::vector<UnitRange> units_;  // per chunk of this stage
  ChunkPlaces places_;
  int stage_;
  OperatorSplits splits_;
  std::unique_ptr<Group> alone_;
  TensorParallel tp_;
  Group* pp_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Norm final_norm_;
  VocabHead head_;
  Slab cache_;
  Slab work_;
  std::int64_t seen_ = 0;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const DecoderInput& input) {
  return std::make_unique<DecoderOf>(input);
}

}  // namespace trainctl
