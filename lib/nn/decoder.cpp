#include "nn/decoder.h"

#include <algorithm>
#include <cassert>

#include "base/at.h"
#include "comm/await.h"
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
  const MeshShare share{input.mesh};
  for (const UnitRange& range : units_of(input)) {
    const UnitRange blocks = blocks_in(range, model.layers);
    for (int unit = blocks.begin; unit < blocks.end; ++unit) {
      const LocalShape local =
          local_shape(layer_form(model, unit - 1), share, input.splits.of_unit(unit));
      const Shape shape{model.positions, local.kv};
      rows.push_back({"k" + std::to_string(unit - 1), shape, input.compute});
      rows.push_back({"v" + std::to_string(unit - 1), shape, input.compute});
    }
  }
  rows.push_back(
      {"own_logits", {1, end_shape(model, share, input.splits.head).vocabulary}, input.compute});
  rows.push_back({"logits", {1, model.padded_vocab}, input.compute});
  rows.push_back({"logits_fp32", {1, model.padded_vocab}, DType::f32});
  return rows;
}

/// What moves between host and device: the tokens of a pass, and what comes of them.
std::vector<SlabRow> host_rows(const DecoderInput& input) {
  return {{"tokens", {pass_tokens}, DType::i32},
          {"position", {pass_tokens}, DType::i32},
          {"logits_fp32", {1, input.model.padded_vocab}, DType::f32}};
}

/// What one pass takes is one routing group without a limit: nothing else may depend on how the
/// tokens come.
ModelShape unlimited(ModelShape model) {
  model.routing_group = 0;
  model.capacity_group = 0;
  model.capacity_factor = 0;
  return model;
}

/// The model as if its sequences were one pass long, which sizes the working rows.
ModelShape one_pass_long(ModelShape model) {
  model.seq_length = pass_tokens;
  return unlimited(model);
}

/// The rows of a pass.
ActivationTable table_of(const DecoderInput& input) {
  const ModelShape model = one_pass_long(input.model);
  return make_activations({.model = model,
                           .mesh = input.mesh,
                           .compute = input.compute,
                           .splits = input.splits,
                           .places = input.places,
                           .stage = stage_of(input)},
                          units_of(input));
}

/// Nothing goes backward, and the head has only one token.
bool is_used(const ActivationTable& table, int row) {
  const HeadScratch<RowCopies>& head = table.places.head_scratch;
  const bool of_head =
      row == head.logits.later || row == head.stats.later || row == head.all_stats.later;
  const Moment from = at(table.rows, row).from;
  return !of_head && from != Moment::gradient && from != Moment::backward;
}

/// Of the rows of a pass, those of the host or those of the device.
std::vector<SlabRow> work_rows(const ActivationTable& table, bool on_host) {
  std::vector<SlabRow> rows;
  for (int row = 0; row < std::ssize(table.rows); ++row) {
    const ActivationSpec& spec = at(table.rows, row);
    if (!is_used(table, row) || spec.on_host() != on_host) continue;
    rows.push_back({spec.name, spec.shape, spec.dtype});
  }
  return rows;
}

/// The first `tokens` tokens' part of a row of a pass.
Tensor part_of(const Tensor& whole, std::int64_t tokens) {
  // Not of tokens: absent, or an expert's count.
  if (whole.empty() || whole.shape[0] % pass_tokens != 0) return whole;
  return whole.slice(0, whole.shape[0] / pass_tokens * tokens);
}

class DecoderOf final : public Decoder {
 public:
  explicit DecoderOf(const DecoderInput& input)
      : model_(unlimited(input.model)),
        units_(units_of(input)),
        places_(input.places),
        stage_(stage_of(input)),
        splits_(input.splits),
        deadline_(input.deadline_seconds),
        alone_(self_group("decoder")),
        tp_{input.tp != nullptr ? input.tp : alone_.get()},
        pp_(input.pp != nullptr ? input.pp : alone_.get()),
        cache_(input.device, cache_rows(input)),
        table_(table_of(input)),
        work_(input.device, work_rows(table_, false)),
        counted_(Slab::on_host_for(input.device, work_rows(table_, true))),
        host_(Slab::on_host_for(input.device, host_rows(input))) {
    if (holds(0)) embedding_ = make_embedding(input.weights, model_, tp_, splits_.embedding);
    for (const UnitRange& range : units_) {
      const UnitRange blocks = blocks_in(range, model_.layers);
      for (int unit = blocks.begin; unit < blocks.end; ++unit) {
        blocks_.push_back(make_block({input.weights,
                                      model_,
                                      input.rope_tables,
                                      {.tp = tp_, .split = splits_.of_unit(unit)},
                                      {.ep = alone_.get()}},
                                     unit - 1));
      }
    }
    for (int number = 0; number < places_.chunks; ++number) chunks_.push_back(place_chunk(number));
    open_lines();
    one_token_ = place_blocks(1);
    if (!holds(head_unit(model_.layers))) return;
    final_norm_ = make_norm(input.weights, "final_norm", model_.norm_kind, model_.norm_epsilon);
    head_ = make_vocab_head(input.weights, model_, tp_, splits_.head, *alone_);
    const HeadUnitRows<RowCopies>& head = table_.places.head;
    head_norm_ = {row(head.input), row(head.norm), row(head.mean), row(head.rstd)};
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
    const Tensor known = host_.at("logits_fp32");
    ops.stream->copy(known, wide);
    await(ops.stream->record(), deadline_, [] { return "the logits of a token"; });
    return {known.as<float>(), static_cast<std::size_t>(model_.vocab)};
  }

  void reset() override { seen_ = 0; }
  std::int64_t seen() const override { return seen_; }
  std::int64_t capacity() const override { return model_.positions; }

 private:
  /// The rows of a chunk of this stage, for a whole pass.
  struct Chunk {
    Tensor position, input, output;  // the latter two are empty at the ends of the model
    Tensor tokens, embedded;         // with the embedding
  };

  bool holds(int unit) const { return trainctl::holds(units_, unit); }
  ChunkRows between() const { return {places_, stage_, units_, model_.layers, table_.places}; }
  /// Empty where the pass has no such row.
  Tensor row(int number) const {
    if (number < 0 || !is_used(table_, number)) return {};
    const ActivationSpec& spec = at(table_.rows, number);
    return (spec.on_host() ? counted_ : work_).at(spec.name);
  }
  Tensor row(const RowCopies& copies) const { return row(copies.later); }

  Chunk place_chunk(int number) const {
    const UnitRange& units = at(units_, number);
    const bool first = units.holds(0);
    const BatchRows& batch = at(table_.places.chunks, number).batch;
    Chunk chunk;
    chunk.tokens = row(batch.tokens);
    chunk.position = row(batch.position);
    if (!first) chunk.input = row(between().input(number));
    if (first) chunk.embedded = row(between().output_of(number, 0));
    if (places_.after(stage_, number)) chunk.output = row(between().output(number));
    return chunk;
  }

  void open_lines() {
    std::vector<MessageLine> lines;
    for (int number = 0; number < places_.chunks; ++number) {
      if (places_.receives(stage_, number)) {
        lines.push_back({places_.before(stage_, number)->stage, number, false});
      }
      if (places_.sends(stage_, number)) {
        const ChunkAt to = *places_.after(stage_, number);
        lines.push_back({to.stage, to.chunk, true});
      }
    }
    pp_->open_lines(lines);
  }

  /// The blocks' rows in a pass of so many tokens, without what they see of the cache.
  std::vector<BlockSaved> place_blocks(std::int64_t tokens) const {
    StageInput place;
    place.model = model_;
    place.units = units_;
    place.places = places_;
    place.stage = stage_;
    place.tp = tp_;
    place.splits = splits_;
    place.rows = &table_.places;
    place.activations = [&](int, int number) { return part_of(row(number), tokens); };
    std::vector<BlockSaved> placed;
    for (const UnitRange& range : units_) {
      const UnitRange blocks = blocks_in(range, model_.layers);
      for (int unit = blocks.begin; unit < blocks.end; ++unit) {
        BlockSaved& saved = placed.emplace_back(place_block(place, 0, unit - 1));
        const std::string index = std::to_string(unit - 1);
        saved.attention.keys = cache_.at("k" + index);
        saved.attention.values = cache_.at("v" + index);
      }
    }
    return placed;
  }

  /// With the rows of the cache that the block's tokens, the next ones, fill and see.
  BlockSaved with_cache(BlockSaved saved, std::int64_t tokens) const {
    Attention::Saved& attention = saved.attention;
    attention.k = attention.keys.slice(seen_, seen_ + tokens);
    attention.v = attention.values.slice(seen_, seen_ + tokens);
    if (attention.k_rstd.empty()) attention.k_raw = attention.k;
    attention.queries = attention.q;
    attention.keys = attention.keys.slice(0, seen_ + tokens);
    attention.values = attention.values.slice(0, seen_ + tokens);
    attention.shape.query_length = tokens;
    attention.shape.key_length = seen_ + tokens;
    attention.shape.query_offset = seen_;
    return saved;
  }

  /// The tokens of all stages, on the host. What a device still copies of the pass before is
  /// waited for.
  void fill_batch(std::span<const std::int32_t> tokens) const {
    await(copied_, deadline_, [] { return "the copy of tokens"; });
    std::copy(tokens.begin(), tokens.end(), host_.at("tokens").as<std::int32_t>());
    auto* const position = host_.at("position").as<std::int32_t>();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      position[i] = static_cast<std::int32_t>(seen_ + static_cast<std::int64_t>(i));
    }
  }

  /// The rows that a chunk reads, filled from the host.
  BatchTensors fetch_batch(const Chunk& chunk, std::int64_t tokens, Stream& stream) const {
    const auto fetch = [&](const Tensor& row, const char* name) {
      const Tensor own = part_of(row, tokens);
      if (!own.empty()) stream.copy(own, part_of(host_.at(name), tokens));
      return own;
    };
    BatchTensors batch;
    batch.tokens = fetch(chunk.tokens, "tokens");
    batch.position = fetch(chunk.position, "position");
    return batch;
  }

  /// The chunks in turn, with the messages around them.
  void pass(const OpContext& ops, std::span<const std::int32_t> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const std::vector<BlockSaved> several =
        count == 1 ? std::vector<BlockSaved>{} : place_blocks(count);
    const std::vector<BlockSaved>& placed = count == 1 ? one_token_ : several;
    fill_batch(tokens);
    std::size_t block = 0;  // of this stage
    for (int number = 0; number < places_.chunks; ++number) {
      pass_chunk(ops, number, count, placed, block);
    }
    copied_ = ops.stream->record();
    seen_ += count;
  }

  void pass_chunk(const OpContext& ops, int number, std::int64_t count,
                  const std::vector<BlockSaved>& placed, std::size_t& block) {
    const UnitRange& units = at(units_, number);
    const Chunk& chunk = at(chunks_, number);
    const BatchTensors batch = fetch_batch(chunk, count, *ops.stream);
    const Pass pass{.ops = &ops,
                    .state = nullptr,
                    .batch = batch,
                    .stream = batch,
                    .training = false,
                    .deadline_seconds = deadline_};
    const Tensor input = part_of(chunk.input, count);
    if (places_.receives(stage_, number)) {
      const ChunkAt from = *places_.before(stage_, number);
      ops.stream->wait(pp_->receive(input, from.stage, number, *ops.stream));
    }
    for (int unit = units.begin; unit < units.end; ++unit) {
      if (unit == 0) {
        const Tensor embedded = part_of(chunk.embedded, count);
        embedding_.forward(pass, {embedded, embedded});
      } else if (unit == head_unit(model_.layers)) {
        head(pass, count);
      } else {
        blocks_[block].forward(pass, with_cache(placed[block], count));
        ++block;
      }
    }
    const auto to = places_.after(stage_, number);
    if (!to) return;
    const Tensor output = part_of(chunk.output, count);
    if (units.empty()) ops.stream->copy(output, input);
    if (!places_.sends(stage_, number)) return;
    ops.stream->wait(pp_->send(output, to->stage, to->chunk, *ops.stream));
  }

  void head(const Pass& pass, std::int64_t count) const {
    const Norm::Saved norm{part_of(head_norm_.x, count), part_of(head_norm_.y, count),
                           part_of(head_norm_.mean, count), part_of(head_norm_.rstd, count)};
    final_norm_.forward(pass, norm);
    head_.logits(pass, norm.y.slice(count - 1, count), cache_.at("own_logits"));
  }

  ModelShape model_;
  std::vector<UnitRange> units_;  // per chunk of this stage
  ChunkPlaces places_;
  int stage_;
  OperatorSplits splits_;
  double deadline_;
  std::unique_ptr<Group> alone_;
  TensorParallel tp_;
  Group* pp_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Norm final_norm_;
  VocabHead head_;
  Slab cache_;
  ActivationTable table_;
  Slab work_;
  Slab counted_;  // what the host reads of it
  Slab host_;
  Event copied_;  // what a pass took from there
  std::vector<Chunk> chunks_;
  std::vector<BlockSaved> one_token_;  // see place_blocks
  Norm::Saved head_norm_;              // of a whole pass
  std::int64_t seen_ = 0;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(const DecoderInput& input) {
  return std::make_unique<DecoderOf>(input);
}

}  // namespace trainctl
