#include "plan/model/activations.h"

#include <algorithm>
#include <optional>

#include "plan/model/activation_rows.h"
#include "plan/model/expert_rows.h"

namespace trainctl {

namespace {

void add_statistics(Rows& rows, const StageShare& share, const std::string& name) {
  const std::int64_t tokens = share.local.stream_rows;
  if (share.model.norm_kind == NormKind::layer_norm) rows.statistic(name + ".mean", tokens);
  rows.statistic(name + ".rstd", tokens);
}

void add_norm(Rows& rows, const StageShare& share, const std::string& name, BlockPart part) {
  rows.begin(part);
  rows.row(name, share.local.stream_rows, share.model.hidden, for_weight);
  add_statistics(rows, share, name);
  rows.end();
}

/// Whether a block's MLP or experts need all tokens of the micro-batch, of which sequence
/// parallelism leaves a part on each rank.
bool gathers_mlp(const StageShare& share, bool experts) {
  if (!experts) return gathers(share.stream(), share.split.feed_forward);
  return share.input.sequence_parallel &&
         (!share.input.exchange.by_stream || share.model.shared_ffn > 0);
}

/// The gradient of a branch's output on its way to the branch's last product, whose W reads the
/// last of them: masked with dropout, gathered with sequence parallelism. The first is the gradient
/// of the residual stream, which lives as `first` and its own `until` say.
void add_branch_gradients(Rows& rows, const StageShare& share, const std::string& first,
                          Moment from, const std::string& branch, bool gathered,
                          Moment last_read = Moment::weight) {
  const bool masked = share.model.hidden_dropout > 0;
  const auto add = [&](const std::string& name, std::int64_t tokens, Moment start, bool last) {
    rows.row(name, tokens, share.model.hidden,
             {Storage::gradient, start, last ? last_read : Moment::backward});
  };
  const std::int64_t stream = share.local.stream_rows;
  add(first, stream, from, !masked && !gathered);
  if (masked) add(branch + "d_branch", stream, Moment::backward, !gathered);
  if (gathered) add(branch + "d_gathered", share.local.tokens, Moment::backward, true);
}

/// The input of a column-parallel product, where it is kept as every rank needs it.
void add_gathered(Rows& rows, const StageShare& share, const std::string& branch, BlockPart part) {
  rows.end();
  if (!rows.form.gathered(part)) return;
  rows.row(branch + "gathered", share.local.tokens, share.model.hidden, for_weight);
}

/// What layers with the same input write, and the gradients of that, lie in the order in which
/// buckets have the layers' parameters, from the last to the first: equally far apart, they are one
/// batch of products (ops/matmul_batch.h).
void add_attention(Rows& rows, const StageShare& share, const std::string& attention) {
  const LocalShape& local = share.local;
  const std::int64_t own = local.attention_rows;
  if (gathers(share.stream(), share.split.attention)) {
    add_gathered(rows, share, attention, BlockPart::qkv);
  }
  rows.begin(BlockPart::qkv);
  const std::int64_t tokens = share.attended_tokens();
  rows.row(attention + "v", tokens, share.attended_kv(), for_backward);
  rows.row(attention + "k", tokens, share.attended_kv(), for_backward);
  rows.row(attention + "q", tokens, share.attended_q(), for_backward);
  if (share.model.qk_norm) {
    rows.row(attention + "k_raw", own, local.kv, for_backward);
    rows.row(attention + "q_raw", own, local.q, for_backward);
    rows.statistic(attention + "q_rstd", own * local.heads);
    rows.statistic(attention + "k_rstd", own * local.kv_heads);
  }
  rows.begin(BlockPart::attention);
  if (share.head_ranks() > 1) {
    rows.row(attention + "attended", tokens, share.attended_q(), for_backward);
  }
  rows.row(attention + "context", own, local.q, for_weight);
  rows.statistic(attention + "logsumexp", own * local.heads);
  rows.end();
}

void add_attention_gradients(Rows& rows, const StageShare& share, const std::string& attention) {
  const LocalShape& local = share.local;
  add_branch_gradients(rows, share, attention + "d_middle", Moment::backward, attention,
                       gathers(share.stream(), share.split.attention));
  rows.row(attention + "d_v", local.attention_rows, local.kv, output_gradient);
  rows.row(attention + "d_k", local.attention_rows, local.kv, output_gradient);
  rows.row(attention + "d_q", local.attention_rows, local.q, output_gradient);
}

void add_mlp(Rows& rows, const StageShare& share, const std::string& mlp) {
  const LocalShape& local = share.local;
  const bool gated = share.model.gated_mlp;
  const std::int64_t tokens = local.mlp_rows;
  if (gathers_mlp(share, false)) add_gathered(rows, share, mlp, BlockPart::mlp);
  rows.begin(BlockPart::mlp);
  rows.row(mlp + "up", tokens, local.ffn, for_backward);
  if (gated) rows.row(mlp + "gate", tokens, local.ffn, for_backward);
  rows.begin(BlockPart::activation);
  rows.row(mlp + "act", tokens, local.ffn, for_weight);
  rows.end();
  rows.row(mlp + "d_up", tokens, local.ffn, output_gradient);
  if (gated) rows.row(mlp + "d_gate", tokens, local.ffn, output_gradient);
}

/// What a block reads and the unit below writes; from F to R perhaps only this rank's share of it.
void add_input(Rows& rows, const StageShare& share, const std::string& prefix) {
  const std::int64_t stream = share.local.stream_rows;
  const std::int64_t hidden = share.model.hidden;
  const bool slices = rows.form.slices_input;
  if (!slices && !rows.form.on_host) return rows.row(prefix + "input", stream, hidden, unit_input);
  const Moment until = slices ? Moment::forward : Moment::offload;
  rows.row(prefix + "input", stream, hidden, {Storage::input, Moment::input, until});
  rows.row(prefix + "input_again", stream, hidden, slices ? made_again : reloaded);
  if (!slices) return rows.row(host_prefix + prefix + "input", stream, hidden, on_host);
  rows.add(prefix + "input_slice", Shape{stream * hidden / share.input.mesh.tp}, rows.compute,
           {Storage::input, Moment::forward, Moment::repeat});
}

void add_block(Rows& rows, const StageShare& share, const std::string& prefix) {
  const ModelShape& model = share.model;
  const std::int64_t stream = share.local.stream_rows;
  add_input(rows, share, prefix);
  add_norm(rows, share, prefix + "norm1", BlockPart::norm1);
  add_attention(rows, share, prefix + "attention.");
  rows.begin(BlockPart::projection);
  rows.row(prefix + "middle", stream, model.hidden, for_backward);
  add_norm(rows, share, prefix + "norm2", BlockPart::norm2);
  const bool experts = model.has_experts(rows.unit - 1);
  const bool gathered = gathers_mlp(share, experts);
  if (experts) {
    if (gathered) add_gathered(rows, share, prefix + "mlp.", BlockPart::mlp);
    add_expert_rows(rows, share, prefix + "moe.");
  } else {
    add_mlp(rows, share, prefix + "mlp.");
  }
  // W of routed experts reads a copy of each token's gradient for each of its experts.
  const bool only_routed = experts && model.shared_ffn == 0;
  add_branch_gradients(rows, share, gradient_row(rows.unit), Moment::gradient, prefix + "mlp.",
                       gathered, only_routed ? Moment::backward : Moment::weight);
  add_attention_gradients(rows, share, prefix + "attention.");
}

void add_embedding(Rows& rows, const StageShare& share) {
  rows.row(gradient_row(0), share.local.stream_rows, share.model.hidden,
           {Storage::gradient, Moment::gradient, Moment::backward});
}

void add_head(Rows& rows, const StageShare& share) {
  const std::int64_t stream = share.local.stream_rows;
  const std::int64_t hidden = share.model.hidden;
  rows.row("head.input", stream, hidden, unit_input);
  const bool deferred = share.input.deferred_head;
  rows.row("head.norm", stream, hidden,
           {Storage::forward, Moment::forward, deferred ? Moment::weight : Moment::forward});
  if (deferred) {
    rows.add("head.kept_stats", Shape{3 * share.ends.head_rows}, DType::f32,
             {Storage::statistic, Moment::forward, Moment::weight});
  }
  add_statistics(rows, share, "head.norm");
  rows.row("head.d_norm", stream, hidden, for_backward);
}

/// One share for each way in which blocks of these units divide attention.
std::vector<StageShare> attention_shares(const StageShare& share,
                                         const std::vector<UnitRange>& units) {
  std::vector<StageShare> shares;
  any_block(units, share.model.layers, [&](int unit) {
    const StageShare one(share.input, unit);
    const auto alike = [&](const StageShare& other) { return other.attends_like(one); };
    if (std::ranges::none_of(shares, alike)) shares.push_back(one);
    return false;
  });
  return shares;
}

/// Scratch that blocks use in turn: as much as the one that needs most of it.
void add_most(Rows& rows, const std::vector<StageShare>& shares, const char* name,
              const auto& shape_of, std::optional<DType> dtype = {}) {
  Shape most;
  for (const StageShare& share : shares) {
    const Shape shape = shape_of(share);
    if (shape.rank() > 0 && (most.rank() == 0 || shape.numel() > most.numel())) most = shape;
  }
  if (most.rank() > 0) rows.add(name, most, dtype.value_or(rows.compute), shared);
}

/// What attention exchanges with other ranks, on its way.
void add_context_scratch(Rows& rows, const std::vector<StageShare>& shares) {
  for (const char* name : {"cp.k", "cp.v", "cp.d_k", "cp.d_v"}) {
    add_most(rows, shares, name, [](const StageShare& one) {
      const ContextSplit& split = one.context;
      if (split.ring * split.gather == 1) return Shape{};
      const std::int64_t held = split.ring > 1 ? 2 : split.gather;
      return Shape{held * one.attended_tokens(), one.attended_kv()};
    });
  }
  for (const char* name : {"cp.part_q", "cp.part_k", "cp.part_v"}) {
    add_most(rows, shares, name, [=](const StageShare& one) {
      const std::int64_t width = name[8] == 'q' ? one.attended_q() : one.attended_kv();
      return one.context.ring > 1 ? Shape{one.attended_tokens(), width} : Shape{};
    });
  }
  const auto sums = [](const StageShare& one) {
    return one.context.ring > 1 ? Shape{one.attended_heads()} : Shape{};
  };
  add_most(rows, shares, "cp.part_logsumexp", sums, DType::f32);
}

/// What ranks that exchange tokens for heads have on its way.
void add_head_exchange(Rows& rows, const std::vector<StageShare>& shares) {
  const auto add = [&](const char* name, const auto& shape_of) {
    add_most(rows, shares, name,
             [&](const StageShare& one) { return one.head_ranks() > 1 ? shape_of(one) : Shape{}; });
  };
  using One = const StageShare&;
  const auto own_kv = [](One one) { return Shape{one.local.attention_rows, one.local.kv}; };
  add("heads.own_v", own_kv);
  add("heads.own_k", own_kv);
  add("heads.own_q", [](One one) { return Shape{one.local.attention_rows, one.local.q}; });
  add("heads.d_attended", [](One one) { return Shape{one.attended_tokens(), one.attended_q()}; });
  add("heads.packed", [](One one) {
    const bool gathers = one.local.head_ranks > 1 && !one.input.splits.moves_at_once;
    return Shape{one.local.attention_rows * (gathers ? one.local.head_ranks : 1), one.local.q};
  });
}

void add_block_scratch(Rows& rows, const StageShare& share, const std::vector<UnitRange>& units) {
  const std::vector<StageShare> shares = attention_shares(share, units);
  if (shares.empty()) return;
  rows.row("branch", share.local.stream_rows, share.model.hidden, shared);
  rows.row("d_norm", share.local.stream_rows, share.model.hidden, shared);
  add_most(rows, shares, "d_context", [](const StageShare& one) {
    return Shape{one.local.attention_rows, one.local.q};
  });
  add_context_scratch(rows, shares);
  add_head_exchange(rows, shares);
}

/// The rows of one chunk's messages. Their moments are those of its first unit on its lower side,
/// of its last on the upper.
void add_messages(Rows& rows, const StageShare& share, const UnitRange& units) {
  const ActivationInput& input = share.input;
  const MessageRules& rules = input.messages;
  const std::string prefix = chunk_prefix(rows.chunk);
  const auto add = [&](const char* name, DType dtype, Life life) {
    rows.add(prefix + name, Shape{share.local.stream_rows, share.model.hidden}, dtype, life);
  };
  const auto message = [](Moment from, Moment until) {
    return Life{Storage::message, from, until};
  };
  const bool receives = input.places.receives(input.stage, rows.chunk);
  rows.unit = units.empty() ? -1 : units.begin;
  if (units.empty()) {
    add("input", rows.compute, message(Moment::input, Moment::forward));
    add("d_output", rows.compute, message(Moment::gradient, Moment::backward));
  }
  if (receives) add("d_input", rows.compute, shared);
  if (receives && rules.casts) {
    add("received", input.message_dtype, message(Moment::input, Moment::forward));
    add("d_sent", input.message_dtype, shared);
  }
  if (!input.places.sends(input.stage, rows.chunk)) return;
  rows.unit = units.empty() ? -1 : units.end - 1;
  const Life sent = rules.keeps_outputs ? message(Moment::forward, Moment::backward) : shared;
  add("output", rows.compute, rules.casts ? shared : sent);
  if (!rules.casts) return;
  add("sent", input.message_dtype, sent);
  add("d_received", input.message_dtype, message(Moment::gradient, Moment::backward));
}

void add_head_scratch(Rows& rows, const StageShare& share) {
  const ActivationInput& input = share.input;
  const EndShape& local = share.ends;
  const std::int64_t given = input.head_tokens;
  const std::int64_t chunk =
      given > 0 ? std::min(given, local.head_rows) : head_tokens(input.model, local, input.compute);
  rows.row("head.logits", chunk, local.vocabulary, shared);
  const auto stats = [&](const std::string& name, std::int64_t ranks) {
    rows.add(name, Shape{3 * ranks, chunk}, DType::f32, shared);
  };
  stats("head.stats", 1);
  if (input.splits.head == SplitBy::features) stats("head.all_stats", input.mesh.tp);
}

/// The data of one chunk's micro-batch: what its units read.
void add_batch(Rows& rows, const StageShare& share, const UnitRange& units) {
  const int head = head_unit(share.model.layers);
  const std::string prefix = chunk_prefix(rows.chunk) + "batch.";
  std::int64_t tokens = share.local.tokens;
  const auto add = [&](const char* name, DType dtype, int unit, Moment until) {
    rows.unit = units.empty() ? -1 : unit;
    rows.add(prefix + name, Shape{tokens}, dtype, {Storage::batch, Moment::fetch, until});
  };
  if (units.holds(0)) add("tokens", DType::i32, 0, Moment::backward);
  const Moment scored = share.input.deferred_head ? Moment::weight : Moment::forward;
  if (units.holds(head)) add("labels", DType::i32, head, scored);
  add("position", DType::i32, units.begin, Moment::backward);
  add("global_token", DType::i64, units.begin, Moment::backward);
  if (units.holds(head)) add("loss_weight", DType::f32, head, scored);
  if (count_expert_blocks(share.model, {units}) > 0) {
    // Routers count the tokens of all context-parallel ranks.
    tokens *= share.input.mesh.cp;
    add("real", DType::u8, units.begin, Moment::backward);
  }
  const std::int64_t heads = share.input.context.most(&ContextSplit::heads);
  tokens = share.local.tokens * heads;
  add("first_position", DType::i32, units.begin, Moment::backward);
  if (heads > 1) {
    add("query_token", DType::i64, units.begin, Moment::backward);
  }
}

/// A block's rows; two lists of them where some micro-batches keep more.
void add_block_kinds(Rows& rows, const StageShare& share) {
  const StageForms& forms = share.input.forms;
  const BlockForm usual = forms.of(rows.unit, false);
  const BlockForm partial = forms.is_partial.empty() ? usual : forms.of(rows.unit, true);
  const std::string prefix = block_prefix(rows.unit);
  rows.form = usual;
  if (usual == partial) {
    add_block(rows, share, prefix);
  } else {
    rows.kind = RowKind::usual;
    add_block(rows, share, prefix);
    rows.kind = RowKind::partial;
    rows.form = partial;
    add_block(rows, share, prefix);
  }
  rows.kind = RowKind::all;
  rows.form = {};
}

void add_units(Rows& rows, const StageShare& share, const UnitRange& range) {
  const std::int64_t layers = share.model.layers;
  for (rows.unit = range.begin; rows.unit < range.end; ++rows.unit) {
    switch (kind_of_unit(rows.unit, layers)) {
      case UnitKind::embedding: add_embedding(rows, share); break;
      case UnitKind::block: add_block_kinds(rows, {share.input, rows.unit}); break;
      case UnitKind::head: add_head(rows, share); break;
    }
  }
}

/// Whether an operator of these units gathers the residual stream.
bool gathers_any(const StageShare& share, const std::vector<UnitRange>& units) {
  const OperatorSplits& splits = share.input.splits;
  const Layout stream = share.stream();
  const bool ends = (holds(units, 0) && gathers(stream, splits.embedding)) ||
                    (holds(units, head_unit(share.model.layers)) && gathers(stream, splits.head));
  return ends || any_block(units, share.model.layers, [&](int unit) {
           const StageShare one(share.input, unit);
           return gathers(stream, one.split.attention) ||
                  gathers_mlp(one, share.model.has_experts(unit - 1));
         });
}

void add_scratch(Rows& rows, const StageShare& share, const std::vector<UnitRange>& units) {
  const std::int64_t hidden = share.model.hidden;
  const LocalShape& local = share.local;
  const ActivationInput& input = share.input;
  add_block_scratch(rows, share, units);
  any_block(units, share.model.layers, [&](int unit) {
    const bool experts = share.model.has_experts(unit - 1);
    if (experts) add_expert_scratch(rows, {input, unit});
    return experts;
  });
  if (gathers_any(share, units)) {
    rows.row("stream.gathered", local.tokens, hidden, shared);
    rows.row("stream.partial", local.tokens, hidden, shared);
  }
  if (input.fp32_sums && input.mesh.tp > 1)
    rows.add("stream.sum", Shape{local.tokens, hidden}, DType::f32, shared);
  if (holds(units, head_unit(share.model.layers))) add_head_scratch(rows, share);
}

}  // namespace

std::vector<ActivationSpec> make_activations(const ActivationInput& input,
                                             const std::vector<UnitRange>& units) {
  const StageShare share(input, 0);
  Rows rows;
  rows.compute = input.compute;
  for (const UnitRange& range : units) {
    ++rows.chunk;
    add_batch(rows, share, range);
    add_units(rows, share, range);
    add_messages(rows, share, range);
  }
  add_scratch(rows, share, units);
  return std::move(rows.list);
}

}  // namespace trainctl
