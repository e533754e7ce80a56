#include "plan/model/activations.h"

#include <algorithm>
#include <optional>

namespace trainctl {

const BlockRows& DeclaredRows::block(int unit, bool keeps_more) const {
  const RowKind kind = keeps_more ? RowKind::partial : RowKind::usual;
  return *std::ranges::find_if(blocks, [&](const BlockRows& one) {
    return one.unit == unit && (one.kind == RowKind::all || one.kind == kind);
  });
}

int ChunkRows::input(int chunk) const {
  const UnitRange& range = of(chunk);
  return range.empty() ? messages(chunk).input.later : input_of(range.begin);
}

int ChunkRows::output_gradient(int chunk) const {
  const UnitRange& range = of(chunk);
  return range.empty() ? messages(chunk).d_output.later : gradient_of(range.end - 1);
}

int ChunkRows::output(int chunk) const {
  if (places.sends(stage, chunk)) return messages(chunk).output.later;
  return input(places.after(stage, chunk)->chunk);
}

int ChunkRows::input_gradient(int chunk) const {
  if (places.receives(stage, chunk)) return messages(chunk).d_input.later;
  return output_gradient(places.before(stage, chunk)->chunk);
}

int ChunkRows::output_of(int chunk, int unit) const {
  return unit + 1 == of(chunk).end ? output(chunk) : input_of(unit + 1);
}

int ChunkRows::input_gradient_of(int chunk, int unit) const {
  return unit == of(chunk).begin ? input_gradient(chunk) : gradient_of(unit - 1);
}

int ChunkRows::input_of(int unit) const {
  return unit == head_unit(layers) ? rows.head.input.later : block(unit).input.written();
}

int ChunkRows::gradient_of(int unit) const {
  return unit == 0 ? rows.embedded_gradient.later : block(unit).mlp_branch.d_output.later;
}

namespace {

/// Appends declared rows to the table, each with the current `unit`, `chunk`, `kind` and `form`.
struct TableMaker {
  ActivationTable table;
  int unit = -1;
  int chunk = -1;
  RowKind kind = RowKind::all;
  BlockForm form{};  // how `unit` keeps its activations

  RowCopies add(const std::string& name, const RowSpec& row) {
    if (row.empty()) return {};
    Life life = row.life;
    const bool made = life.storage == Storage::forward || life.storage == Storage::statistic;
    const bool kept = (made || life.storage == Storage::input) && life.until >= Moment::repeat;
    RowCopies copies;
    if (made && repeats(row)) {
      copies.first =
          push("first." + name, row, {Storage::repeated, Moment::forward, Moment::forward});
      life = life::made_again;
    } else if (form.on_host && kept) {
      copies.first = push("first." + name, row, {Storage::staged, life.from, Moment::offload});
      copies.host = push("host." + name, row, life::on_host);
      life = life::reloaded;
    }
    copies.later = push(name, row, life);
    return keep(copies);
  }
  /// Appends the rows that a layer declares, in their order.
  template <template <class> class Kind>
  Kind<RowCopies> add(const std::string& prefix, const Kind<RowSpec>& declared) {
    return each_row<RowCopies>(
        declared, [&](const char* name, const RowSpec& row) { return add(prefix + name, row); });
  }
  /// Appends rows with life::each_pass: first all rows for F, then those for R and B.
  template <template <class> class Kind>
  Kind<RowCopies> add_passes(const std::string& prefix, const Kind<RowSpec>& declared) {
    Kind<RowCopies> made;
    for (const bool first : {true, false}) {
      Kind<RowSpec>::visit(
          [&](const char* name, const RowSpec& row, RowCopies& copies) {
            if (row.empty()) return;
            const Moment from = first          ? Moment::forward
                                : repeats(row) ? Moment::repeat
                                               : Moment::backward;
            (first ? copies.first : copies.later) =
                push((first ? "first." : "") + prefix + name, row,
                     {row.life.storage, from, first ? Moment::forward : Moment::backward});
          },
          declared, made);
    }
    return made;
  }
  /// Appends the block's input, which the unit below writes. If a rank keeps only its slice from F
  /// to R, or the input is in host memory meanwhile, the restored input has a second row.
  void add_input(BlockRows& block, const std::string& prefix, const RowSpec& input,
                 std::int64_t ranks) {
    if (!form.slices_input && !form.on_host) {
      block.input.later = push(prefix + "input", input, input.life);
      return;
    }
    const Moment until = form.slices_input ? Moment::forward : Moment::offload;
    block.input.first = push(prefix + "input", input, {Storage::input, Moment::input, until});
    block.input.later =
        push(prefix + "input_again", input, form.slices_input ? life::made_again : life::reloaded);
    if (!form.slices_input) {
      block.input.host = push("host." + prefix + "input", input, life::on_host);
      keep(block.input);
      return;
    }
    block.input_slice =
        add(prefix + "input_slice", {{input.shape.numel() / ranks},
                                     input.dtype,
                                     {Storage::input, Moment::forward, Moment::repeat}});
  }

 private:
  bool repeats(const RowSpec& row) const { return row.part && form.repeats(*row.part); }
  RowCopies keep(const RowCopies& copies) {
    if (copies.host >= 0) table.places.host_rows.push_back(copies);
    return copies;
  }
  int push(const std::string& name, const RowSpec& row, Life life) {
    const bool own = life.storage != Storage::shared;
    table.rows.push_back({name, row.shape, row.dtype, life.storage, life.from, life.until,
                          own ? unit : -1, own ? chunk : -1, own ? kind : RowKind::all});
    return static_cast<int>(std::ssize(table.rows)) - 1;
  }
};

MeshShare mesh_share(const ActivationInput& input) {
  return {input.mesh, input.micro_batch_size, input.sequence_parallel};
}

LayerShare share_of(const ActivationInput& input, int unit) {
  const BlockSplit split = input.splits.of_unit(unit);
  return {.local = local_shape(layer_form(input.model, unit - 1), mesh_share(input), split,
                               input.exchange),
          .mesh = input.mesh,
          .stream = input.sequence_parallel ? Layout::tokens : Layout::invariant,
          .split = split,
          .context = input.context.of_unit(unit),
          .exchange = input.exchange,
          .moves_heads_at_once = input.splits.moves_at_once,
          .fp32_sums = input.fp32_sums,
          .compute = input.compute};
}

EndShape ends_of(const ActivationInput& input) {
  return end_shape(input.model, mesh_share(input), input.splits.head);
}

/// A row with `tokens` tokens and the features of the residual stream.
RowSpec stream_row(const ActivationInput& input, std::int64_t tokens, DType type, Life life) {
  return {{tokens, input.model.hidden}, type, life};
}

/// Whether the branch all-gathers the residual stream before its first product.
bool gathers_attention(const LayerShare& share) {
  return gathers(share.stream, share.split.attention);
}
bool gathers_feed_forward(const LayerForm& form, const LayerShare& share) {
  if (!form.has_experts()) return gathers(share.stream, share.split.feed_forward);
  return share.stream == Layout::tokens && form.needs_all(share.exchange.by_stream);
}

/// The gradients of a branch's output, from the residual stream (available from `start` on) to the
/// branch's last product: masked with dropout or times a factor, then gathered with sequence
/// parallelism. W reads the last gradient, unless `reads_copies`.
void add_branch_gradients(TableMaker& maker, const LayerForm& form, const LayerShare& share,
                          const std::string& first, Moment start, const std::string& branch,
                          bool gathered, bool reads_copies, BranchCopies& copies) {
  const auto row = [&](std::int64_t tokens, Moment from, bool last) {
    const Moment until = last && !reads_copies ? Moment::weight : Moment::backward;
    return RowSpec{{tokens, form.hidden}, share.compute, {Storage::gradient, from, until}};
  };
  const std::int64_t stream = share.local.stream_rows;
  copies.d_output = maker.add(first, row(stream, start, !form.copies_gradients && !gathered));
  if (form.copies_gradients) {
    copies.d_branch = maker.add(branch + "d_branch", row(stream, Moment::backward, !gathered));
  }
  if (gathered) {
    copies.d_gathered =
        maker.add(branch + "d_gathered", row(share.local.tokens, Moment::backward, true));
  }
}

void add_feed_forward(TableMaker& maker, BlockRows& block, const LayerForm& form,
                      const LayerShare& share, const std::string& prefix) {
  if (gathers_feed_forward(form, share) && maker.form.gathered(BlockPart::mlp)) {
    block.mlp_branch.gathered =
        maker.add(prefix + "mlp.gathered",
                  {{share.local.tokens, form.hidden}, share.compute, life::for_weight});
  }
  if (!form.has_experts()) {
    const auto rows = [&](const auto& declare) {
      return declare(share.local.mlp_rows, share.local.ffn, form.gated, share.compute);
    };
    block.mlp = maker.add(prefix + "mlp.", rows(feed_forward_rows));
    block.d_mlp = maker.add(prefix + "mlp.d_", rows(feed_forward_gradients));
    return;
  }
  const std::string moe = prefix + "moe.";
  block.experts = maker.add(moe, expert_rows(form, share));
  block.transit = maker.add_passes(moe, expert_transit(form, share));
  block.d_experts = maker.add(moe + "d_", expert_gradients(form, share));
  const std::string shared = moe + "shared.";
  block.shared_logit = maker.add(shared + "logit", shared_gate_logit(form, share));
  block.shared = maker.add(shared, shared_expert_rows(form, share));
  block.d_shared = maker.add(shared + "d_", shared_expert_gradients(form, share));
  block.d_shared_logit = maker.add(shared + "d_logit", shared_gate_gradient(form, share));
}

BlockRows add_block(TableMaker& maker, const LayerForm& form, const LayerShare& share) {
  const std::string prefix = block_prefix(maker.unit);
  const std::string attention = prefix + "attention.";
  const auto stream = [&](Life life, std::optional<BlockPart> part = {}) {
    return RowSpec{{share.local.stream_rows, form.hidden}, share.compute, life, part};
  };
  BlockRows block;
  block.unit = maker.unit;
  block.kind = maker.kind;
  // Without a norm before a branch, its first products read the residual stream itself, also in W.
  const bool before = norms_before(form.norms);
  const Life input = before ? life::unit_input : life::weight_input;
  maker.add_input(block, prefix, stream(input), share.mesh.tp);
  if (before) block.norm1 = maker.add(prefix + "norm1", norm_rows(form, share, BlockPart::norm1));
  block.attention = maker.add(attention, attention_rows(form, share, maker.form));
  if (norms_after(form.norms)) {
    block.post_norm1 =
        maker.add(prefix + "post_norm1", post_norm_rows(form, share, BlockPart::projection));
  }
  block.middle = maker.add(prefix + "middle", stream(before ? life::for_backward : life::for_weight,
                                                     BlockPart::projection));
  if (before) block.norm2 = maker.add(prefix + "norm2", norm_rows(form, share, BlockPart::norm2));
  add_feed_forward(maker, block, form, share, prefix);
  if (norms_after(form.norms)) {
    block.post_norm2 = maker.add(prefix + "post_norm2", post_norm_rows(form, share, {}));
  }
  // W of routed experts reads a copy of each token's gradient for each of its experts instead.
  const bool only_routed = form.has_experts() && form.shared_ffn == 0;
  add_branch_gradients(maker, form, share, prefix + "d_output", Moment::gradient, prefix + "mlp.",
                       gathers_feed_forward(form, share), only_routed, block.mlp_branch);
  add_branch_gradients(maker, form, share, attention + "d_middle", Moment::backward, attention,
                       gathers_attention(share), false, block.attention_branch);
  block.d_attention = maker.add(attention + "d_", attention_gradients(form, share));
  return block;
}

/// Appends a block's rows, twice if some micro-batches keep more than others.
void add_block_kinds(TableMaker& maker, const ActivationInput& input) {
  const StageForms& forms = input.forms;
  const LayerForm form = layer_form(input.model, maker.unit - 1);
  const LayerShare share = share_of(input, maker.unit);
  const BlockForm usual = forms.of(maker.unit, false);
  const BlockForm partial = forms.is_partial.empty() ? usual : forms.of(maker.unit, true);
  const auto add = [&](RowKind kind, const BlockForm& kept) {
    maker.kind = kind;
    maker.form = kept;
    maker.table.places.blocks.push_back(add_block(maker, form, share));
  };
  if (usual == partial) {
    add(RowKind::all, usual);
  } else {
    add(RowKind::usual, usual);
    add(RowKind::partial, partial);
  }
  maker.kind = RowKind::all;
  maker.form = {};
}

void add_units(TableMaker& maker, const ActivationInput& input, const UnitRange& range) {
  const EndShape ends = ends_of(input);
  DeclaredRows& places = maker.table.places;
  for (maker.unit = range.begin; maker.unit < range.end; ++maker.unit) {
    switch (kind_of_unit(maker.unit, input.model.layers)) {
      case UnitKind::embedding:
        places.embedded_gradient =
            maker.add("embedding.d_output",
                      stream_row(input, ends.stream_rows, input.compute,
                                 {Storage::gradient, Moment::gradient, Moment::backward}));
        break;
      case UnitKind::block: add_block_kinds(maker, input); break;
      case UnitKind::head:
        places.head =
            maker.add("head.", head_rows(input.model, ends, input.compute, input.deferred_head));
        break;
    }
  }
}

/// Appends the rows of one chunk's messages. Messages of the chunk's lower side have moments of its
/// first unit, those of its upper side moments of its last unit.
MessageRows add_messages(TableMaker& maker, const ActivationInput& input, const UnitRange& units) {
  const std::int64_t tokens = ends_of(input).stream_rows;
  const MessageRules& rules = input.messages;
  const std::string prefix = chunk_prefix(maker.chunk);
  const auto add = [&](const char* name, DType dtype, Life life) {
    return maker.add(prefix + name, stream_row(input, tokens, dtype, life));
  };
  const auto message = [](Moment from, Moment until) {
    return Life{Storage::message, from, until};
  };
  const bool receives = input.places.receives(input.stage, maker.chunk);
  MessageRows rows;
  maker.unit = units.empty() ? -1 : units.begin;
  if (units.empty()) {
    rows.input = add("input", input.compute, message(Moment::input, Moment::forward));
    rows.d_output = add("d_output", input.compute, message(Moment::gradient, Moment::backward));
  }
  if (receives) rows.d_input = add("d_input", input.compute, life::shared);
  if (receives && rules.casts) {
    rows.received = add("received", input.message_dtype, message(Moment::input, Moment::forward));
    rows.d_sent = add("d_sent", input.message_dtype, life::shared);
  }
  if (!input.places.sends(input.stage, maker.chunk)) return rows;
  maker.unit = units.empty() ? -1 : units.end - 1;
  const Life sent = rules.keeps_outputs ? message(Moment::forward, Moment::backward) : life::shared;
  rows.output = add("output", input.compute, rules.casts ? life::shared : sent);
  if (!rules.casts) return rows;
  rows.sent = add("sent", input.message_dtype, sent);
  rows.d_received =
      add("d_received", input.message_dtype, message(Moment::gradient, Moment::backward));
  return rows;
}

/// The first unit of a stage that is a block with experts, or 0.
int first_routed(const ActivationInput& input, const std::vector<UnitRange>& units) {
  for (const int unit : blocks_of(units, input.model.layers)) {
    if (layer_form(input.model, unit - 1).has_experts()) return unit;
  }
  return 0;
}

/// Appends the data of one chunk's micro-batch that its units read.
BatchRows add_batch(TableMaker& maker, const ActivationInput& input, const UnitRange& units) {
  const int head = head_unit(input.model.layers);
  const std::int64_t tokens = ends_of(input).tokens;
  const auto add = [&](const char* name, DType dtype, int unit, Moment until, std::int64_t times) {
    maker.unit = units.empty() ? -1 : unit;
    return maker.add(chunk_prefix(maker.chunk) + "batch." + name,
                     {{times * tokens}, dtype, {Storage::batch, Moment::fetch, until}});
  };
  const auto of_chunk = [&](const char* name, DType dtype, std::int64_t times = 1) {
    return add(name, dtype, units.begin, Moment::backward, times);
  };
  const Moment scored = input.deferred_head ? Moment::weight : Moment::forward;
  BatchRows rows;
  if (units.holds(0)) rows.tokens = add("tokens", DType::i32, 0, Moment::backward, 1);
  if (units.holds(head)) rows.labels = add("labels", DType::i32, head, scored, 1);
  rows.position = of_chunk("position", DType::i32);
  rows.global_token = of_chunk("global_token", DType::i64);
  if (units.holds(head)) rows.loss_weight = add("loss_weight", DType::f32, head, scored, 1);
  // Routers count the tokens of all context-parallel ranks, so each rank has their masks.
  if (first_routed(input, {units}) > 0) rows.real = of_chunk("real", DType::u8, input.mesh.cp);
  const std::int64_t heads = input.context.most(&ContextSplit::heads);
  rows.first_position = of_chunk("first_position", DType::i32, heads);
  if (heads > 1) rows.query_token = of_chunk("query_token", DType::i64, heads);
  if (input.watches_scores) rows.real_query = of_chunk("real_query", DType::u8, heads);
  return rows;
}

/// Scratch rows of attention, each as large as in the block that needs most.
AttentionScratch<RowSpec> largest_attention(const ActivationInput& input,
                                            const std::vector<UnitRange>& units) {
  AttentionScratch<RowSpec> most;
  std::optional<LayerShare> last;
  bool normed = false;
  for (const int unit : blocks_of(units, input.model.layers)) {
    const LayerShare share = share_of(input, unit);
    const LayerForm form = layer_form(input.model, unit - 1);
    if (last && last->attends_like(share) && form.attention.qk_norm == normed) continue;
    last = share;
    normed = form.attention.qk_norm;
    const AttentionScratch<RowSpec> one = attention_scratch(form, share);
    AttentionScratch<RowSpec>::visit(
        [](const char*, RowSpec& largest, const RowSpec& row) {
          const bool larger = largest.empty() || row.shape.numel() > largest.shape.numel();
          if (!row.empty() && larger) largest = row;
        },
        most, one);
  }
  return most;
}

/// Whether any operator of these units all-gathers the residual stream.
bool gathers_any(const ActivationInput& input, const std::vector<UnitRange>& units) {
  const OperatorSplits& splits = input.splits;
  const Layout stream = share_of(input, 0).stream;
  const bool ends = (holds(units, 0) && gathers(stream, splits.embedding)) ||
                    (holds(units, head_unit(input.model.layers)) && gathers(stream, splits.head));
  return ends || std::ranges::any_of(blocks_of(units, input.model.layers), [&](int unit) {
           const LayerShare share = share_of(input, unit);
           return gathers_attention(share) ||
                  gathers_feed_forward(layer_form(input.model, unit - 1), share);
         });
}

void add_scratch(TableMaker& maker, const ActivationInput& input,
                 const std::vector<UnitRange>& units) {
  DeclaredRows& places = maker.table.places;
  const EndShape ends = ends_of(input);
  const auto add = [&](const char* name, std::int64_t tokens, DType dtype) {
    return maker.add(name, stream_row(input, tokens, dtype, life::shared));
  };
  if (!blocks_of(units, input.model.layers).empty()) {
    places.branch = add("branch", ends.stream_rows, input.compute);
    places.d_norm = add("d_norm", ends.stream_rows, input.compute);
    places.attention = maker.add("", largest_attention(input, units));
  }
  if (const int unit = first_routed(input, units); unit > 0) {
    places.experts =
        maker.add("moe.", expert_scratch(layer_form(input.model, unit - 1), share_of(input, unit)));
  }
  if (gathers_any(input, units)) {
    places.all_tokens = add("stream.gathered", ends.tokens, input.compute);
    places.partial_sums = add("stream.partial", ends.tokens, input.compute);
  }
  if (input.fp32_sums && input.mesh.tp > 1) places.sum = add("stream.sum", ends.tokens, DType::f32);
  if (!holds(units, head_unit(input.model.layers))) return;
  const std::int64_t chunk = input.head_tokens > 0 ? std::min(input.head_tokens, ends.head_rows)
                                                   : head_tokens(input.model, ends, input.compute);
  places.head_scratch = maker.add(
      "head.", head_scratch(ends, input.compute, chunk, input.mesh.tp, input.splits.head));
}

}  // namespace

ActivationTable make_activations(const ActivationInput& input,
                                 const std::vector<UnitRange>& units) {
  TableMaker maker;
  for (const UnitRange& range : units) {
    ++maker.chunk;
    maker.table.places.batches.push_back(add_batch(maker, input, range));
    add_units(maker, input, range);
    maker.table.places.messages.push_back(add_messages(maker, input, range));
  }
  add_scratch(maker, input, units);
  return std::move(maker.table);
}

}  // namespace trainctl
