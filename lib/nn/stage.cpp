#include "nn/stage.h"

#include "base/at.h"
#include "comm/world.h"
#include "nn/block.h"
#include "nn/ends.h"
#include "plan/model/declaration.h"

namespace trainctl {

namespace {

// The tensors that layers save and the gradients that they write: views into the rows of the
// activation table, made before the first step and where the length of a micro-batch changes.

/// Which tensors of a block: those written by its first forward, or those that R, B and W access.
enum class BlockUse : std::uint8_t { first, later };

constexpr int row_for(const RowCopies& copies, BlockUse use) {
  return use == BlockUse::first ? copies.written() : copies.later;
}

/// Maps each row of `rows` to a tensor by row(index), an index in the stage's table; absent: empty.
template <template <class> class Kind, class Row>
Kind<Tensor> bind(const Kind<RowCopies>& rows, BlockUse use, const Row& row) {
  return each_row<Tensor>(rows, [&](const char*, const RowCopies& copies) {
    const int index = row_for(copies, use);
    return index < 0 ? Tensor{} : row(index);
  });
}

/// View of the first elements of a scratch buffer that several blocks share, in the given shape.
Tensor of_scratch(const Tensor& scratch, const Shape& shape) {
  return scratch.view({scratch.numel()}).slice(0, shape.numel()).view(shape);
}

/// The attention shape of a unit. This rank's numbers of heads follow from the columns of q and k.
AttentionShape attention_shape(const StageInput& input, int unit, const Tensor& q,
                               const Tensor& k) {
  const ModelShape& model = input.model;
  return {.sequences = input.micro_batch_size,
          .query_length = q.rows() / input.micro_batch_size,
          .key_length = k.rows() / input.micro_batch_size,
          .heads = q.columns() / model.head_dim,
          .kv_heads = k.columns() / model.head_dim,
          .head_dim = model.head_dim,
          .query_offset = 0,
          .scale = static_cast<float>(model.softmax_scale),
          .cap = static_cast<float>(model.attention_cap),
          .limits = model.kind(unit - 1).limits};
}

int chunk_of(const StageInput& input, int unit) {
  int chunk = 0;
  while (!at(input.units, chunk).holds(unit)) ++chunk;
  return chunk;
}

/// The rows of activations of one view.
class ViewRows {
 public:
  ViewRows(const StageInput& input, int view) : input_(input), view_(view) {}

  const StageInput& input() const { return input_; }
  const DeclaredRows& stage() const { return *input_.rows; }
  const BlockRows& block(int unit) const {
    return stage().block(unit, input_.keeps_more && input_.keeps_more(view_, unit));
  }
  Tensor at(int row) const { return row < 0 ? Tensor{} : input_.activations(view_, row); }
  /// The copy of a row that B and W read; the only copy if the row is not repeated.
  Tensor at(const RowCopies& row) const { return at(row.later); }
  template <template <class> class Kind>
  Kind<Tensor> bound(const Kind<RowCopies>& rows, BlockUse use = BlockUse::later) const {
    return bind(rows, use, [&](int row) { return at(row); });
  }

  /// The unit's output: a buffer sent to another stage, or the next unit's input. input_gradient_of
  /// is the unit's input gradient: sent to another stage, or the previous unit's output gradient.
  Tensor output_of(int unit) const { return at(between().output_of(chunk_of(input_, unit), unit)); }
  Tensor input_gradient_of(int unit) const {
    return at(between().input_gradient_of(chunk_of(input_, unit), unit));
  }

  bool by_token() const { return input_.tp.stream == Layout::tokens; }
  /// The tokens inside an operator: `all` if the operator gathers the stream, this rank's share if
  /// it splits a whole stream by tokens, else `own`.
  Tensor tokens_inside(const RowCopies& all, const Tensor& own, SplitBy split) const {
    if (gathers(input_.tp.stream, split)) return at(all);
    const bool share = !by_token() && split == SplitBy::tokens;
    return share ? local_rows(*input_.tp.group, own) : own;
  }
  /// tokens_inside() for a block of experts. With by_stream, only shared experts need all tokens.
  Tensor expert_tokens(const RowCopies& all, const Tensor& own) const {
    const bool needed = !input_.experts.by_stream || input_.model.shared_ffn > 0;
    return needed && by_token() ? at(all) : own;
  }

 private:
  ChunkRows between() const {
    return {input_.places,
            input_.stage,
            input_.units,
            input_.model.layers,
            stage(),
            [this](int unit) { return input_.keeps_more && input_.keeps_more(view_, unit); }};
  }

  const StageInput& input_;
  int view_;
};

/// Whether ranks exchange heads, so that attention works on all tokens for its part of the heads.
bool exchanges_heads(const StageInput& input, int unit) {
  const bool by_tokens = input.splits.of_unit(unit).attention == SplitBy::tokens;
  return by_tokens || input.context(unit).split.heads > 1;
}

/// The buffers of a unit's attention with queries `q` and keys `k`.
SharedKeys::Buffers shared_buffers(const ViewRows& rows, int unit, const Tensor& q,
                                   const Tensor& k) {
  const ContextSplit split = rows.input().context(unit).split;
  const AttentionScratch<Tensor> scratch = rows.bound(rows.stage().attention);
  const auto part = [](const Tensor& of, std::int64_t times, const Tensor& like) {
    return of_scratch(of, {times * like.rows(), like.columns()});
  };
  SharedKeys::Buffers buffers;
  if (split.ring * split.gather == 1) return buffers;
  const std::int64_t held = split.ring > 1 ? 2 : split.gather;
  buffers.all = {part(scratch.k, held, k), part(scratch.v, held, k)};
  buffers.d_all = {part(scratch.d_k, held, k), part(scratch.d_v, held, k)};
  if (split.ring == 1) return buffers;
  buffers.part = {part(scratch.part_k, 1, k), part(scratch.part_v, 1, k)};
  buffers.part_q = part(scratch.part_q, 1, q);
  buffers.part_logsumexp =
      of_scratch(scratch.part_logsumexp, {q.numel() / rows.input().model.head_dim});
  return buffers;
}

/// The tensors of one block for one use.
class BlockTensors {
 public:
  BlockTensors(const ViewRows& rows, int unit, BlockUse use)
      : rows_(rows), input_(rows.input()), block_(rows.block(unit)), unit_(unit), use_(use) {}

  Tensor at(const RowCopies& row) const { return rows_.at(row_for(row, use_)); }

  Norm::Saved norm(const Tensor& x, const NormRows<RowCopies>& norm) const {
    const NormRows<Tensor> own = rows_.bound(norm, use_);
    return {x, own.y.empty() ? x : own.y, own.mean, own.rstd};
  }
  /// The norm of a branch's output. The output is kept; the term added to the residual stream is
  /// temporary.
  Norm::Saved post_norm(const NormRows<RowCopies>& norm) const {
    const NormRows<Tensor> own = rows_.bound(norm, use_);
    return {own.x, rows_.at(rows_.stage().branch), own.mean, own.rstd};
  }
  /// The buffer for a branch's output.
  Tensor branch(const NormRows<RowCopies>& norm) const {
    const Tensor kept = at(norm.x);
    return kept.empty() ? rows_.at(rows_.stage().branch) : kept;
  }

  Attention::Saved attention(const Tensor& x) const {
    const AttentionRows<Tensor> own = rows_.bound(block_.attention, use_);
    const AttentionScratch<Tensor> scratch = rows_.bound(rows_.stage().attention);
    const SplitBy split = input_.splits.of_unit(unit_).attention;
    Attention::Saved saved;
    saved.x = x;
    saved.keeps_x = !own.gathered.empty();
    saved.all_x =
        saved.keeps_x ? own.gathered : rows_.tokens_inside(rows_.stage().all_tokens, x, split);
    saved.queries = own.q;
    saved.keys = own.k;
    saved.values = own.v;
    saved.shape = attention_shape(input_, unit_, saved.queries, saved.keys);
    const bool exchanges = exchanges_heads(input_, unit_);
    const auto made_here = [&](const Tensor& before, const Tensor& attended) {
      const std::int64_t rows = saved.all_x.rows();
      return exchanges ? of_scratch(before, {rows, attended.numel() / rows}) : attended;
    };
    saved.q = made_here(scratch.local_q, saved.queries);
    saved.k = made_here(scratch.local_k, saved.keys);
    saved.v = made_here(scratch.local_v, saved.values);
    const bool normed = input_.model.kind(unit_ - 1).qk_norm;
    saved.q_raw = normed ? own.q_raw : saved.q;
    saved.k_raw = normed ? own.k_raw : saved.k;
    saved.q_rstd = own.q_rstd;
    saved.k_rstd = own.k_rstd;
    if (!scratch.norm_sums.empty()) {
      saved.norm_sums = of_scratch(scratch.norm_sums, {2, saved.all_x.rows()});
    }
    saved.context = own.context;
    saved.gate = own.gate;
    if (!own.gate.empty()) saved.gated = of_scratch(scratch.gated, own.gate.shape);
    saved.attended = exchanges ? own.attended : saved.context;
    saved.shared = shared_buffers(rows_, unit_, saved.queries, saved.keys);
    saved.logsumexp = own.logsumexp;
    saved.y = branch(block_.post_norm1);
    saved.partial = rows_.tokens_inside(rows_.stage().partial_sums, saved.y, split);
    return saved;
  }

  MlpSaved mlp(const Tensor& x) const {
    const bool experts = input_.model.kind(unit_ - 1).experts;
    const auto all = [&](const RowCopies& row, const Tensor& own) {
      return experts ? rows_.expert_tokens(row, own)
                     : rows_.tokens_inside(row, own, input_.splits.of_unit(unit_).feed_forward);
    };
    const Tensor gathered = at(block_.mlp_branch.gathered);
    MlpSaved saved;
    saved.x = x;
    saved.keeps_x = !gathered.empty();
    saved.all_x = saved.keeps_x ? gathered : all(rows_.stage().all_tokens, x);
    saved.y = branch(block_.post_norm2);
    saved.partial = all(rows_.stage().partial_sums, saved.y);
    static_cast<FeedForwardRows<Tensor>&>(saved) =
        rows_.bound(experts ? block_.experts.mlp : block_.mlp, use_);
    if (!experts) return saved;
    saved.routed = routed();
    saved.shared = shared();
    return saved;
  }

 private:
  SharedRows shared() const {
    const ExpertScratch<RowCopies>& scratch = rows_.stage().experts;
    return {rows_.bound(block_.shared, use_), at(block_.shared_logit),
            rows_.at(scratch.shared_scaled), rows_.at(scratch.shared_y)};
  }

  RoutedRows routed() const {
    const ExpertScratch<Tensor> scratch = rows_.bound(rows_.stage().experts);
    const ExpertTransit<Tensor> transit = rows_.bound(block_.transit, use_);
    RoutedRows rows{rows_.bound(block_.experts, use_),
                    transit.sent.empty() ? scratch.transit : transit, scratch};
    if (!rows.all_logits.empty()) return rows;
    rows.all_logits = rows.logits;
    rows.all_chosen = rows.chosen;
    rows.all_weight = rows.weight;
    rows.all_slot = rows.slot;
    return rows;
  }

  const ViewRows& rows_;
  const StageInput& input_;
  const BlockRows& block_;
  int unit_;
  BlockUse use_;
};

Attention::Gradients place_attention_gradients(const ViewRows& rows, int unit, const Tensor& d_norm,
                                               const Tensor& d_middle) {
  const StageInput& input = rows.input();
  const BlockRows& block = rows.block(unit);
  const SplitBy split = input.splits.of_unit(unit).attention;
  const AttentionRows<Tensor> own = rows.bound(block.d_attention);
  const AttentionRows<Tensor> kept = rows.bound(block.attention);
  const AttentionScratch<Tensor> scratch = rows.bound(rows.stage().attention);
  const bool exchanges = exchanges_heads(input, unit);
  const auto exchanged = [&](const Tensor& before, const Tensor& as, const Tensor& after) {
    return exchanges ? of_scratch(before, as.shape) : after;
  };
  const Tensor masked = rows.at(block.attention_branch.d_branch);
  const Tensor dy = masked.empty() ? d_middle : masked;
  const Tensor d_context = of_scratch(scratch.d_context, own.q.shape);
  return {.dy = dy,
          .all_dy = rows.tokens_inside(block.attention_branch.d_gathered, dy, split),
          .d_context = d_context,
          .d_attended = exchanged(scratch.d_attended, kept.q, d_context),
          .d_queries = exchanged(scratch.local_q, kept.q, own.q),
          .d_keys = exchanged(scratch.local_k, kept.k, own.k),
          .d_values = exchanged(scratch.local_v, kept.v, own.v),
          .dq = own.q,
          .dk = own.k,
          .dv = own.v,
          .d_gate = own.gate,
          .partial_dx = rows.tokens_inside(rows.stage().partial_sums, d_norm, split),
          .dx = d_norm};
}

void place_expert_gradients(const ViewRows& rows, const BlockRows& block, MlpGradients& g) {
  const auto summed = [](const Tensor& all, const Tensor& own) { return all.empty() ? own : all; };
  const ExpertScratch<Tensor> scratch = rows.bound(rows.stage().experts);
  const ExpertRows<Tensor> own = rows.bound(block.d_experts);
  const FeedForwardRows<Tensor> shared = rows.bound(block.d_shared);
  g.dgate = own.mlp.gate;
  g.dup = own.mlp.up;
  g.d_logits = own.logits;
  g.all_d_logits = summed(scratch.all_d_logits, own.logits);
  g.d_rows = own.rows;
  g.d_row_weight = scratch.d_row_weight;
  g.narrow = scratch.narrow;
  g.shared_dgate = shared.gate;
  g.shared_dup = shared.up;
  g.shared_d_logit = rows.at(block.d_shared_logit);
  g.shared_all_d_logit = summed(scratch.shared_all_d_logit, g.shared_d_logit);
}

MlpGradients place_mlp_gradients(const ViewRows& rows, int unit, const Tensor& d_norm,
                                 const Tensor& d_output) {
  const StageInput& input = rows.input();
  const BlockRows& block = rows.block(unit);
  const bool experts = input.model.kind(unit - 1).experts;
  const auto inside = [&](const RowCopies& all, const Tensor& own) {
    return experts ? rows.expert_tokens(all, own)
                   : rows.tokens_inside(all, own, input.splits.of_unit(unit).feed_forward);
  };
  const Tensor masked = rows.at(block.mlp_branch.d_branch);
  MlpGradients g;
  g.dy = masked.empty() ? d_output : masked;
  g.all_dy = inside(block.mlp_branch.d_gathered, g.dy);
  g.partial_dx = inside(rows.stage().partial_sums, d_norm);
  g.dx = d_norm;
  if (experts) {
    place_expert_gradients(rows, block, g);
  } else {
    const FeedForwardRows<Tensor> own = rows.bound(block.d_mlp);
    g.dgate = own.gate;
    g.dup = own.up;
  }
  return g;
}

VocabHead::Saved place_head(const ViewRows& rows, int view, const Tensor& x) {
  const StageInput& input = rows.input();
  const SplitBy split = input.splits.head;
  const HeadUnitRows<RowCopies>& own = rows.stage().head;
  const HeadScratch<Tensor> scratch = rows.bound(rows.stage().head_scratch);
  const bool defers = input.defers_head && input.defers_head(view);
  const Tensor dx = rows.at(own.d_norm);
  return {.x = x,
          .all_x = rows.tokens_inside(rows.stage().all_tokens, x, split),
          .partial_dx = rows.tokens_inside(rows.stage().partial_sums, dx, split),
          .dx = dx,
          .logits = scratch.logits,
          .stats = scratch.stats,
          .all_stats = scratch.all_stats.empty() ? scratch.stats : scratch.all_stats,
          .kept_stats = defers ? rows.at(own.kept_stats) : Tensor{}};
}

BlockSaved saved_of_block(const ViewRows& rows, int view, int unit, BlockUse use) {
  const StageInput& input = rows.input();
  const BlockRows& block = rows.block(unit);
  const BlockTensors own(rows, unit, use);
  BlockSaved saved;
  if (input.form) saved.form = input.form(view, unit);
  saved.x = own.at(block.input);
  saved.x_slice = own.at(block.input_slice);
  saved.norm1 = own.norm(saved.x, block.norm1);
  saved.attention = own.attention(saved.norm1.y);
  saved.norm2 = own.norm(own.at(block.middle), block.norm2);
  saved.mlp = own.mlp(saved.norm2.y);
  saved.post_norm1 = own.post_norm(block.post_norm1);
  saved.post_norm2 = own.post_norm(block.post_norm2);
  saved.y = rows.output_of(unit);
  return saved;
}

}  // namespace

BlockSaved place_block(const StageInput& input, int view, std::int64_t layer) {
  return saved_of_block(ViewRows(input, view), view, static_cast<int>(layer) + 1, BlockUse::later);
}

BlockGradients place_block_gradients(const StageInput& input, int view, std::int64_t layer) {
  const int unit = static_cast<int>(layer) + 1;
  const ViewRows rows(input, view);
  const BlockRows& block = rows.block(unit);
  BlockGradients g;
  g.dy = rows.at(block.mlp_branch.d_output);
  g.dx = rows.input_gradient_of(unit);
  g.d_norm = rows.at(rows.stage().d_norm);
  g.d_middle = rows.at(block.attention_branch.d_output);
  g.attention = place_attention_gradients(rows, unit, g.d_norm, g.d_middle);
  g.mlp = place_mlp_gradients(rows, unit, g.d_norm, g.dy);
  return g;
}

namespace {

/// All tensors that one micro-batch in flight keeps on this stage.
struct ViewSaved {
  Tensor embedded, all_embedded;   // the embedding's output: this rank's part, and whole
  std::vector<BlockSaved> first;   // one per layer of the stage; for the first forward
  std::vector<BlockSaved> blocks;  // for R, B and W; differ from `first` in rows that are repeated
                                   // or offloaded to the host
  Norm::Saved final_norm;
  VocabHead::Saved head;
};

ViewSaved place_view(const StageInput& input, int view) {
  const ViewRows rows(input, view);
  const int head = head_unit(input.model.layers);
  ViewSaved saved;
  for (const UnitRange& range : input.units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      if (unit == 0) {
        saved.embedded = rows.output_of(0);
        saved.all_embedded =
            rows.tokens_inside(rows.stage().partial_sums, saved.embedded, input.splits.embedding);
      } else if (unit < head) {
        saved.blocks.push_back(saved_of_block(rows, view, unit, BlockUse::later));
        saved.first.push_back(saved_of_block(rows, view, unit, BlockUse::first));
      } else {
        const HeadUnitRows<Tensor> own = rows.bound(rows.stage().head);
        saved.final_norm = {own.input, own.norm, own.mean, own.rstd};
        saved.head = place_head(rows, view, own.norm);
      }
    }
  }
  return saved;
}

/// The tensors that the backward pass of one micro-batch writes.
struct ViewGradients {
  std::vector<BlockGradients> blocks;  // one per layer of the stage, in order
  Tensor embedded, all_embedded;       // gradient of the embedding's output: own part, and all
  Tensor head_input;                   // gradient of the input of the head's unit
};

ViewGradients place_gradients(const StageInput& input, int view) {
  const ViewRows rows(input, view);
  const int head = head_unit(input.model.layers);
  ViewGradients gradients;
  for (const UnitRange& range : input.units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      if (unit == 0) {
        gradients.embedded = rows.at(rows.stage().embedded_gradient);
        gradients.all_embedded =
            rows.tokens_inside(rows.stage().all_tokens, gradients.embedded, input.splits.embedding);
      } else if (unit < head) {
        gradients.blocks.push_back(place_block_gradients(input, view, unit - 1));
      } else {
        gradients.head_input = rows.input_gradient_of(unit);
      }
    }
  }
  return gradients;
}

class DecoderStage final : public Stage {
 public:
  explicit DecoderStage(const StageInput& input)
      : input_(input), alone_(self_group("alone")), head_unit_(head_unit(input.model.layers)) {
    if (input_.experts.ep == nullptr) input_.experts.ep = alone_.get();
    for (const UnitRange& range : input.units) {
      for (int unit = range.begin; unit < range.end; ++unit) add_unit(input_, unit);
    }
    saved_.resize(static_cast<std::size_t>(input.views));
    gradients_.resize(saved_.size());
    for (int view = 0; view < input.views; ++view) place(view);
  }

  void place(int view) override {
    at(saved_, view) = place_view(input_, view);
    at(gradients_, view) = place_gradients(input_, view);
  }

  void forward(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) override {
    const ViewSaved& saved = at(saved_, view);
    for (int unit = units.begin; unit < units.end; ++unit) {
      if (unit == 0) {
        embedding_.forward(pass, saved.embedded, saved.all_embedded);
      } else if (unit < head_unit_) {
        blocks_[index(unit)].forward(pass, saved.first[index(unit)], leg);
      } else {
        final_norm_.forward(pass, saved.final_norm);
        if (pass.cache == nullptr) return head_.forward(pass, saved.head);
        const Tensor& x = saved.head.x;
        head_.logits(pass, x.slice(x.rows() - 1, x.rows()), saved.head.logits);
      }
    }
  }

  void repeat(const Pass& pass, int view, const UnitRange& units, ExchangePhase leg) override {
    const ViewSaved& saved = at(saved_, view);
    for (int unit = units.begin; unit < units.end; ++unit) {
      blocks_[index(unit)].repeat(pass, saved.blocks[index(unit)], leg);
    }
  }

  void backward_input(const Pass& pass, int view, const UnitRange& units,
                      ExchangePhase leg) override {
    const ViewSaved& saved = at(saved_, view);
    const ViewGradients& gradients = at(gradients_, view);
    for (int unit = units.end - 1; unit >= units.begin; --unit) {
      if (unit == head_unit_) {
        final_norm_.backward(pass, saved.final_norm, saved.head.dx, Tensor{}, gradients.head_input);
      } else if (unit > 0) {
        blocks_[index(unit)].backward_input(pass, saved.blocks[index(unit)],
                                            gradients.blocks[index(unit)], leg);
      } else {
        embedding_.backward(pass, gradients.embedded, gradients.all_embedded);
      }
    }
  }

  void backward_weight(const Pass& pass, int view, int begin, int end) override {
    const ViewSaved& saved = at(saved_, view);
    const ViewGradients& gradients = at(gradients_, view);
    for (int unit = end - 1; unit >= begin; --unit) {
      if (unit == 0) continue;  // B does all of the embedding's backward
      if (unit == head_unit_) {
        head_.backward_weight(pass, saved.head);
        continue;
      }
      blocks_[index(unit)].backward_weight(pass, saved.blocks[index(unit)],
                                           gradients.blocks[index(unit)]);
    }
  }

 private:
  void add_unit(const StageInput& input, int unit) {
    if (unit == 0) {
      embedding_ = make_embedding(input.weights, input.model, input.tp, input.splits.embedding);
    } else if (unit == head_unit_) {
      final_norm_ = make_norm(input.weights, "final_norm", input.model.norm_kind, input.model);
      head_ = make_vocab_head(input.weights, input.model, input.tp, input.splits.head, *alone_);
    } else {
      block_at_.resize(static_cast<std::size_t>(unit) + 1);
      block_at_.back() = blocks_.size();
      blocks_.push_back(make_block(input, unit - 1));
    }
  }

  /// The index of a block's unit in blocks_.
  std::size_t index(int unit) const { return at(block_at_, unit); }

  StageInput input_;
  std::unique_ptr<Group> alone_;
  int head_unit_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> block_at_;  // index into blocks_, by unit
  Norm final_norm_;
  VocabHead head_;
  std::vector<ViewSaved> saved_;          // one per view
  std::vector<ViewGradients> gradients_;  // one per view
};

}  // namespace

std::unique_ptr<Stage> make_decoder_stage(const StageInput& input) {
  return std::make_unique<DecoderStage>(input);
}

}  // namespace trainctl
