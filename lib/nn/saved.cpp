#include "nn/saved.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/at.h"
#include "plan/model/activations.h"

namespace trainctl {

namespace {

bool by_token(const StageInput& input) { return input.tp.stream == Layout::tokens; }

/// The tokens that an operator works on, for a moment: all of them where it gathers the stream, its
/// share of a whole stream, else `own`.
Tensor tokens_inside(const StageInput& input, int view, const char* name, const Tensor& own,
                     SplitBy split) {
  if (gathers(input.tp.stream, split)) return input.activations(view, name);
  const bool share = !by_token(input) && split == SplitBy::tokens;
  return share ? own_rows(*input.tp.group, own) : own;
}

/// The first elements of scratch that several blocks use, as one of them needs it.
Tensor of_scratch(const Tensor& scratch, const Shape& shape) {
  return scratch.view({scratch.numel()}).slice(0, shape.numel()).view(shape);
}

/// A tensor of all tokens that is needed for a moment: `own` where the stream is not split.
Tensor all_tokens(const StageInput& input, int view, const char* name, const Tensor& own) {
  return by_token(input) ? input.activations(view, name) : own;
}

/// The same in a block of experts, where perhaps only shared ones need all tokens.
Tensor expert_tokens(const StageInput& input, int view, const char* name, const Tensor& own) {
  const bool needed = !input.experts.by_stream || input.model.shared_ffn > 0;
  return needed ? all_tokens(input, view, name, own) : own;
}

/// The heads of this rank follow from the rows of `q` and `k`.
AttentionShape attention_shape(const StageInput& input, const Tensor& q, const Tensor& k) {
  const ModelShape& model = input.model;
  return {.sequences = input.micro_batch_size,
          .query_length = q.rows() / input.micro_batch_size,
          .key_length = k.rows() / input.micro_batch_size,
          .heads = q.columns() / model.head_dim,
          .kv_heads = k.columns() / model.head_dim,
          .head_dim = model.head_dim,
          .query_offset = 0,
          .scale = 1.0F / std::sqrt(static_cast<float>(model.head_dim))};
}

/// Whether a block's attention works on all tokens of its part of the heads, which ranks exchange.
bool exchanges_heads(const StageInput& input, int unit) {
  const bool by_tokens = input.splits.of_unit(unit).attention == SplitBy::tokens;
  return by_tokens || input.context.splits.of_unit(unit).heads > 1;
}

int chunk_of(const StageInput& input, int unit) {
  int chunk = 0;
  while (!at(input.units, chunk).holds(unit)) ++chunk;
  return chunk;
}

ChunkRows rows_between(const StageInput& input) {
  return {input.places, input.stage, input.units, input.model.layers};
}

/// Where `unit` leaves its output: what is sent to another stage, or the next unit's input.
Tensor output_of(const StageInput& input, int view, int unit) {
  return input.activations(view, rows_between(input).output_of(chunk_of(input, unit), unit));
}

/// Where `unit` leaves the gradient of its input: the same downwards.
Tensor input_gradient_of(const StageInput& input, int view, int unit) {
  return input.activations(view,
                           rows_between(input).input_gradient_of(chunk_of(input, unit), unit));
}

/// For queries `q` and keys `k` as attention reads them.
SharedKeys::Buffers shared_buffers(const StageInput& input, int view, int unit, const Tensor& q,
                                   const Tensor& k) {
  const ContextSplit split = input.context.splits.of_unit(unit);
  const auto row = [&](const char* name, std::int64_t times, const Tensor& like) {
    return of_scratch(input.activations(view, name), {times * like.rows(), like.columns()});
  };
  SharedKeys::Buffers buffers;
  if (split.ring * split.gather == 1) return buffers;
  const std::int64_t held = split.ring > 1 ? 2 : split.gather;
  buffers.all = {row("cp.k", held, k), row("cp.v", held, k)};
  buffers.d_all = {row("cp.d_k", held, k), row("cp.d_v", held, k)};
  if (split.ring == 1) return buffers;
  buffers.part = {row("cp.part_k", 1, k), row("cp.part_v", 1, k)};
  buffers.part_q = row("cp.part_q", 1, q);
  const Tensor sums = input.activations(view, "cp.part_logsumexp");
  buffers.part_logsumexp = of_scratch(sums, {q.numel() / input.model.head_dim});
  return buffers;
}

/// The rows of one block, by the parts of its forward that make them.
class BlockRows {
 public:
  BlockRows(const StageInput& input, int view, int unit, BlockUse use)
      : input_(input), view_(view), unit_(unit), first_(use == BlockUse::first) {
    if (input.form) form_ = input.form(view, unit);
  }

  int unit() const { return unit_; }
  const BlockForm& form() const { return form_; }
  Tensor shared(const char* name) const { return input_.activations(view_, name); }
  /// What is not made again: in F and later in different places if the host has it meanwhile.
  Tensor kept(const std::string& name) const { return row(form_.on_host, name); }
  /// What `part` makes: in F and from R on in different places if it is made again.
  Tensor made(BlockPart part, const std::string& name) const {
    return row(form_.on_host || form_.repeats(part), name);
  }
  Tensor input() const {
    const bool moves = form_.slices_input || form_.on_host;
    return row(false, moves && !first_ ? "input_again" : "input");
  }

  Norm::Saved norm(BlockPart part, const std::string& name, const Tensor& x) const {
    const bool has_mean = input_.model.norm_kind == NormKind::layer_norm;
    return {x, made(part, name), has_mean ? made(part, name + ".mean") : Tensor{},
            made(part, name + ".rstd")};
  }

  Attention::Saved attention(const Tensor& x) const {
    const auto own = [&](const char* name) { return made(BlockPart::qkv, name); };
    const bool normed = input_.model.qk_norm;
    const SplitBy split = input_.splits.of_unit(unit_).attention;
    Attention::Saved saved;
    saved.x = x;
    saved.keeps_x = form_.gathered(BlockPart::qkv) && gathers(input_.tp.stream, split);
    saved.all_x = saved.keeps_x ? kept("attention.gathered")
                                : tokens_inside(input_, view_, "stream.gathered", x, split);
    saved.queries = own("attention.q");
    saved.keys = own("attention.k");
    saved.values = own("attention.v");
    saved.shape = attention_shape(input_, saved.queries, saved.keys);
    const bool exchanges = exchanges_heads(input_, unit_);
    const auto made_here = [&](const char* name, const Tensor& attended) {
      const std::int64_t rows = saved.all_x.rows();
      return exchanges ? of_scratch(shared(name), {rows, attended.numel() / rows}) : attended;
    };
    saved.q = made_here("heads.own_q", saved.queries);
    saved.k = made_here("heads.own_k", saved.keys);
    saved.v = made_here("heads.own_v", saved.values);
    saved.q_raw = normed ? own("attention.q_raw") : saved.q;
    saved.k_raw = normed ? own("attention.k_raw") : saved.k;
    if (normed) {
      saved.q_rstd = own("attention.q_rstd");
      saved.k_rstd = own("attention.k_rstd");
    }
    saved.context = made(BlockPart::attention, "attention.context");
    saved.attended = exchanges ? made(BlockPart::attention, "attention.attended") : saved.context;
    saved.shared = shared_buffers(input_, view_, unit_, saved.queries, saved.keys);
    saved.logsumexp = made(BlockPart::attention, "attention.logsumexp");
    saved.y = shared("branch");
    saved.partial = tokens_inside(input_, view_, "stream.partial", saved.y, split);
    return saved;
  }

  MlpSaved mlp(const Tensor& x) const {
    const bool experts = input_.model.has_experts(unit_ - 1);
    const auto all = [&](const char* name, const Tensor& own) {
      return experts ? expert_tokens(input_, view_, name, own)
                     : tokens_inside(input_, view_, name, own,
                                     input_.splits.of_unit(unit_).feed_forward);
    };
    const std::string name = experts ? "moe." : "mlp.";
    const Tensor branch = shared("branch");
    const Tensor all_x = all("stream.gathered", x);
    const bool keeps = form_.gathered(BlockPart::mlp) && all_x.rows() > x.rows();
    return {.x = x,
            .all_x = keeps ? kept("mlp.gathered") : all_x,
            .keeps_x = keeps,
            .gate = input_.model.gated_mlp ? made(BlockPart::mlp, name + "gate") : Tensor{},
            .up = made(BlockPart::mlp, name + "up"),
            .act = made(BlockPart::activation, name + "act"),
            .partial = all("stream.partial", branch),
            .y = branch,
            .routed = experts ? routed(x) : RoutedRows{},
            .shared = experts ? shared_rows() : SharedRows{}};
  }

  SharedRows shared_rows() const {
    const ModelShape& model = input_.model;
    SharedRows rows;
    if (model.shared_ffn == 0) return rows;
    if (model.gated_mlp) rows.gate = made(BlockPart::mlp, "moe.shared.gate");
    rows.up = made(BlockPart::mlp, "moe.shared.up");
    rows.act = made(BlockPart::activation, "moe.shared.act");
    if (by_token(input_) && input_.experts.by_stream) rows.y = shared("moe.shared_y");
    if (!model.shared_gate) return rows;
    rows.logit = made(BlockPart::mlp, "moe.shared.logit");
    rows.scaled = shared("moe.shared_scaled");
    return rows;
  }

  RoutedRows routed(const Tensor& x) const {
    const auto own = [&](const char* name) { return made(BlockPart::mlp, name); };
    RoutedRows rows;
    rows.logits = own("moe.logits");
    rows.chosen = own("moe.chosen");
    rows.slot = own("moe.slot");
    rows.choices = own("moe.choices");
    rows.counts = row(false, "moe.counts");
    rows.sent_counts = shared("moe.sent_counts");
    rows.rows = own("moe.rows");
    rows.row_weight = own("moe.row_weight");
    rows.weight = shared("moe.weight");
    const bool alone = input_.experts.routers == nullptr;
    rows.all_logits = alone ? rows.logits : shared("moe.all_logits");
    rows.all_chosen = alone ? rows.chosen : shared("moe.all_chosen");
    rows.all_weight = alone ? rows.weight : shared("moe.all_weight");
    rows.all_slot = alone ? rows.slot : shared("moe.all_slot");
    rows.out = shared("moe.out");
    rows.scaled = shared("moe.scaled");
    if (x.dtype != DType::f32) rows.wide = shared("moe.wide");
    if (rows.counts.shape[0] == 1) return rows;  // no other ranks hold experts
    const auto under_way = [&](const char* name) {
      return input_.experts.in_legs ? row(true, name) : shared(name);
    };
    rows.sent = under_way("moe.sent");
    rows.sent_weight = under_way("moe.sent_weight");
    rows.received = under_way("moe.received");
    rows.received_weight = under_way("moe.received_weight");
    rows.place = under_way("moe.place");
    rows.places = row(false, "moe.places");
    rows.exchanged = row(false, "moe.exchanged");
    return rows;
  }

 private:
  /// `moves`: F and what follows have it in different places.
  Tensor row(bool moves, const std::string& name) const {
    const char* before = moves && first_ ? first_prefix : "";
    return input_.activations(view_, before + block_prefix(unit_) + name);
  }

  const StageInput& input_;
  int view_;
  int unit_;
  bool first_;
  BlockForm form_;
};

BlockGradients place_block_gradients(const StageInput& input, int view, int unit) {
  const ModelShape& model = input.model;
  const auto shared = [&](const char* name) { return input.activations(view, name); };
  const auto row = [&](const char* name) {
    return input.activations(view, block_prefix(unit) + name);
  };
  const bool masked = model.hidden_dropout > 0;
  BlockGradients g;
  g.dy = input.activations(view, gradient_row(unit));
  g.dx = input_gradient_of(input, view, unit);
  g.d_norm = shared("d_norm");
  g.d_middle = row("attention.d_middle");
  const BlockSplit split = input.splits.of_unit(unit);
  const auto inside_dx = [&](SplitBy own) {
    return tokens_inside(input, view, "stream.partial", g.d_norm, own);
  };
  const bool exchanges = exchanges_heads(input, unit);
  const auto exchanged = [&](const char* before, const char* as, const char* after) {
    return exchanges ? of_scratch(shared(before), row(as).shape) : row(after);
  };
  const Tensor attention_dy = masked ? row("attention.d_branch") : g.d_middle;
  const Tensor d_context = of_scratch(shared("d_context"), row("attention.d_q").shape);
  g.attention = {
      .dy = attention_dy,
      .all_dy = gathers(input.tp.stream, split.attention)
                    ? row("attention.d_gathered")
                    : tokens_inside(input, view, "", attention_dy, split.attention),
      .d_context = d_context,
      .d_attended =
          exchanges ? of_scratch(shared("heads.d_attended"), row("attention.q").shape) : d_context,
      .d_queries = exchanged("heads.own_q", "attention.q", "attention.d_q"),
      .d_keys = exchanged("heads.own_k", "attention.k", "attention.d_k"),
      .d_values = exchanged("heads.own_v", "attention.v", "attention.d_v"),
      .dq = row("attention.d_q"),
      .dk = row("attention.d_k"),
      .dv = row("attention.d_v"),
      .partial_dx = inside_dx(split.attention),
      .dx = g.d_norm};
  const bool experts = model.has_experts(unit - 1);
  const Tensor mlp_dy = masked ? row("mlp.d_branch") : g.dy;
  const Tensor mlp_partial = experts ? expert_tokens(input, view, "stream.partial", g.d_norm)
                                     : inside_dx(split.feed_forward);
  const Tensor inside_dy = by_token(input) || experts
                               ? mlp_dy
                               : tokens_inside(input, view, "", mlp_dy, split.feed_forward);
  g.mlp = {.dy = mlp_dy,
           .all_dy = mlp_partial.rows() > g.d_norm.rows() ? row("mlp.d_gathered") : inside_dy,
           .dgate = model.gated_mlp ? row(experts ? "moe.d_gate" : "mlp.d_gate") : Tensor{},
           .dup = row(experts ? "moe.d_up" : "mlp.d_up"),
           .partial_dx = mlp_partial,
           .dx = g.d_norm};
  if (!experts) return g;
  g.mlp.d_logits = row("moe.d_logits");
  const bool whole = by_token(input) && !input.experts.by_stream;
  g.mlp.all_d_logits = whole ? shared("moe.all_d_logits") : g.mlp.d_logits;
  g.mlp.d_rows = row("moe.d_rows");
  g.mlp.d_row_weight = shared("moe.d_row_weight");
  if (g.dy.dtype != DType::f32) g.mlp.narrow = shared("moe.narrow");
  if (model.shared_ffn == 0) return g;
  if (model.gated_mlp) g.mlp.shared_dgate = row("moe.shared.d_gate");
  g.mlp.shared_dup = row("moe.shared.d_up");
  if (!model.shared_gate) return g;
  g.mlp.shared_d_logit = row("moe.shared.d_logit");
  g.mlp.shared_all_d_logit =
      by_token(input) ? shared("moe.shared_all_d_logit") : g.mlp.shared_d_logit;
  return g;
}

}  // namespace

BlockSaved place_block(const StageInput& input, int view, std::int64_t layer, BlockUse use) {
  const BlockRows rows(input, view, static_cast<int>(layer) + 1, use);
  BlockSaved saved;
  saved.form = rows.form();
  saved.x = rows.input();
  if (saved.form.slices_input) saved.x_slice = rows.kept("input_slice");
  saved.norm1 = rows.norm(BlockPart::norm1, "norm1", saved.x);
  saved.attention = rows.attention(saved.norm1.y);
  saved.norm2 = rows.norm(BlockPart::norm2, "norm2", rows.made(BlockPart::projection, "middle"));
  saved.mlp = rows.mlp(saved.norm2.y);
  saved.y = output_of(input, view, rows.unit());
  return saved;
}

ViewSaved place_view(const StageInput& input, int view) {
  const auto row = [&](const std::string& name) { return input.activations(view, name); };
  const int head = head_unit(input.model.layers);
  const bool has_mean = input.model.norm_kind == NormKind::layer_norm;
  ViewSaved saved;
  for (const UnitRange& range : input.units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      if (unit == 0) {
        saved.embedding.y = output_of(input, view, 0);
        saved.embedding.all_y =
            tokens_inside(input, view, "stream.partial", saved.embedding.y, input.splits.embedding);
      } else if (unit < head) {
        saved.blocks.push_back(place_block(input, view, unit - 1));
        saved.first.push_back(place_block(input, view, unit - 1, BlockUse::first));
      } else {
        saved.final_norm = {row("head.input"), row("head.norm"),
                            has_mean ? row("head.norm.mean") : Tensor{}, row("head.norm.rstd")};
        const SplitBy split = input.splits.head;
        saved.head = {
            .x = saved.final_norm.y,
            .all_x = tokens_inside(input, view, "stream.gathered", saved.final_norm.y, split),
            .partial_dx = tokens_inside(input, view, "stream.partial", row("head.d_norm"), split),
            .dx = row("head.d_norm"),
            .logits = row("head.logits"),
            .stats = row("head.stats"),
            .all_stats = row(split == SplitBy::features ? "head.all_stats" : "head.stats"),
            .kept_stats =
                input.defers_head && input.defers_head(view) ? row("head.kept_stats") : Tensor{}};
      }
    }
  }
  return saved;
}

ViewGradients place_gradients(const StageInput& input, int view) {
  const int head = head_unit(input.model.layers);
  ViewGradients gradients;
  for (const UnitRange& range : input.units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      if (unit == 0) {
        gradients.embedded = input.activations(view, gradient_row(0));
        gradients.all_embedded = tokens_inside(input, view, "stream.gathered", gradients.embedded,
                                               input.splits.embedding);
      } else if (unit < head) {
        gradients.blocks.push_back(place_block_gradients(input, view, unit));
      } else {
        gradients.head_input = input_gradient_of(input, view, unit);
      }
    }
  }
  return gradients;
}

}  // namespace trainctl
