#include "plan/tables/activations.h"

#include <algorithm>

namespace trainctl {

namespace {

/// Collects rows; the sizes have the names of the list in the header. Rows get the unit and the
/// chunk that are set at the time.
struct Rows {
  std::vector<ActivationSpec> list;
  DType compute = DType::f32;
  int unit = -1;
  int chunk = -1;

  ActivationSpec& add(const std::string& name, const Shape& shape, DType dtype, Lifetime lifetime) {
    return list.emplace_back(ActivationSpec{name, shape, dtype, lifetime, unit, chunk});
  }
  void batch(const std::string& name, std::int64_t tokens, DType dtype) {
    add("batch." + name, Shape{tokens}, dtype, Lifetime::batch);
  }
  void input(const std::string& name, std::int64_t rows, std::int64_t features) {
    add(name, Shape{rows, features}, compute, Lifetime::kept).unit_input = true;
  }
  void kept(const std::string& name, std::int64_t rows, std::int64_t features) {
    add(name, Shape{rows, features}, compute, Lifetime::kept);
  }
  void statistic(const std::string& name, std::int64_t rows) {
    add(name, Shape{rows}, DType::f32, Lifetime::kept);
  }
  void transient(const std::string& name, std::int64_t rows, std::int64_t features) {
    add(name, Shape{rows, features}, compute, Lifetime::transient);
  }
};

/// What the rows of one stage are made from.
struct Share {
  const ActivationInput& input;
  const ModelShape& model;
  const LocalShape local;
};

void add_norm(Rows& rows, const Share& share, const std::string& name) {
  const std::int64_t tokens = share.local.stream_rows;
  rows.kept(name, tokens, share.model.hidden);
  if (share.model.norm_kind == NormKind::layer_norm) rows.statistic(name + ".mean", tokens);
  rows.statistic(name + ".rstd", tokens);
}

void add_experts(Rows& rows, const Share& share, const std::string& prefix) {
  const ModelShape& model = share.model;
  const LocalShape& local = share.local;
  const std::string moe = prefix + "moe.";
  const Shape inner{local.experts, local.expert_rows, local.expert_ffn};
  const auto kept = [&](const std::string& name, const Shape& shape, DType dtype) {
    rows.add(moe + name, shape, dtype, Lifetime::kept);
  };
  kept("probs", {local.stream_rows, model.experts}, DType::f32);
  kept("slot", {local.stream_rows, model.topk}, DType::i32);
  kept("dispatched", {local.experts, local.expert_rows, model.hidden}, rows.compute);
  if (model.gated_mlp) kept("gate", inner, rows.compute);
  kept("up", inner, rows.compute);
  kept("act", inner, rows.compute);
  kept("returned", {model.experts, local.capacity, model.hidden}, rows.compute);
}

void add_block(Rows& rows, const Share& share, const std::string& prefix) {
  const ModelShape& model = share.model;
  const LocalShape& local = share.local;
  const std::string attention = prefix + "attention.";
  rows.input(prefix + "input", local.stream_rows, model.hidden);
  add_norm(rows, share, prefix + "norm1");
  if (model.qk_norm) {
    rows.kept(attention + "q_raw", local.tokens, local.q);
    rows.kept(attention + "k_raw", local.tokens, local.kv);
    rows.statistic(attention + "q_rstd", local.tokens * local.heads);
    rows.statistic(attention + "k_rstd", local.tokens * local.kv_heads);
  }
  rows.kept(attention + "q", local.tokens, local.q);
  rows.kept(attention + "k", local.tokens, local.kv);
  rows.kept(attention + "v", local.tokens, local.kv);
  rows.kept(attention + "context", local.tokens, local.q);
  rows.statistic(attention + "logsumexp", local.tokens * local.heads);
  rows.kept(prefix + "middle", local.stream_rows, model.hidden);
  add_norm(rows, share, prefix + "norm2");
  if (model.experts > 1) return add_experts(rows, share, prefix);
  if (model.gated_mlp) rows.kept(prefix + "mlp.gate", local.tokens, local.ffn);
  rows.kept(prefix + "mlp.up", local.tokens, local.ffn);
  rows.kept(prefix + "mlp.act", local.tokens, local.ffn);
}

void add_head(Rows& rows, const Share& share) {
  rows.input("head.input", share.local.stream_rows, share.model.hidden);
  add_norm(rows, share, "head.norm");
  rows.kept("head.d_norm", share.local.stream_rows, share.model.hidden);
}

void add_mlp_transients(Rows& rows, const Share& share) {
  const ModelShape& model = share.model;
  const LocalShape& local = share.local;
  if (model.experts == 1) {
    rows.transient("d_ffn", local.tokens, local.ffn);
    if (model.gated_mlp) rows.transient("d_gate", local.tokens, local.ffn);
    return;
  }
  const std::int64_t held = local.experts * local.expert_rows;
  rows.transient("moe.send", model.experts * local.capacity, model.hidden);
  rows.transient("moe.d_dispatched", held, model.hidden);
  rows.transient("moe.d_ffn", held, local.expert_ffn);
  if (model.gated_mlp) rows.transient("moe.d_gate", held, local.expert_ffn);
}

void add_block_transients(Rows& rows, const Share& share) {
  const std::int64_t hidden = share.model.hidden;
  const LocalShape& local = share.local;
  rows.transient("d_middle", local.stream_rows, hidden);
  rows.transient("d_norm", local.stream_rows, hidden);
  if (share.model.hidden_dropout > 0) {
    rows.transient("d_branch.attention", local.stream_rows, hidden);
    rows.transient("d_branch.mlp", local.stream_rows, hidden);
  }
  rows.transient("d_q", local.tokens, local.q);
  rows.transient("d_k", local.tokens, local.kv);
  rows.transient("d_v", local.tokens, local.kv);
  rows.transient("d_context", local.tokens, local.q);
  add_mlp_transients(rows, share);
  if (share.input.mesh.cp == 1) return;
  for (const char* name : {"cp.k", "cp.v", "cp.d_k", "cp.d_v"}) {
    rows.transient(name, local.tokens, local.kv);
  }
}

/// Each chunk but the model's last sends its output on and receives its gradient; each but the
/// first the other way round.
void add_messages(Rows& rows, const Share& share, const std::vector<UnitRange>& units) {
  const ActivationInput& input = share.input;
  const MessageRules& rules = input.messages;
  const bool overlapped = rules.mode == MessageMode::overlapped;
  const int end = all_units(share.model.layers).end;
  const auto add = [&](const std::string& name, DType dtype, bool kept) {
    rows.add(name, Shape{share.local.stream_rows, share.model.hidden}, dtype,
             kept ? Lifetime::kept : Lifetime::transient);
  };
  bool sends_gradients = false;
  for (std::size_t chunk = 0; chunk < units.size(); ++chunk) {
    const std::string prefix = "chunk." + std::to_string(chunk) + ".";
    rows.chunk = static_cast<int>(chunk);
    if (units[chunk].end != end) {
      // A posted gradient waits on the wire's side of the cast, one that has come on the layers'.
      const bool waits_on_wire = rules.casts && overlapped;
      add(prefix + "output", rows.compute, rules.keeps_outputs && !rules.casts);
      add(prefix + "d_output", rows.compute, input.early_gradients && !waits_on_wire);
      if (rules.casts) {
        add(prefix + "sent", input.message_dtype, rules.keeps_outputs);
        add(prefix + "d_received", input.message_dtype, input.early_gradients && waits_on_wire);
      }
    }
    if (units[chunk].begin == 0) continue;
    sends_gradients = true;
    if (rules.casts) add(prefix + "received", input.message_dtype, overlapped);
  }
  rows.chunk = -1;
  if (sends_gradients && rules.casts) add("d_stream.sent", input.message_dtype, false);
}

void add_head_transients(Rows& rows, const Share& share) {
  const ActivationInput& input = share.input;
  const LocalShape& local = share.local;
  const std::int64_t chunk = head_chunk(local.vocabulary, local.head_rows, input.compute);
  rows.transient("head.logits", chunk, local.vocabulary);
  const auto stats = [&](const std::string& name, std::int64_t ranks) {
    rows.add(name, Shape{3 * ranks, chunk}, DType::f32, Lifetime::transient);
  };
  stats("head.stats", 1);
  if (input.split_vocabulary) stats("head.all_stats", input.mesh.tp);
}

void add_batch(Rows& rows, const Share& share, const std::vector<UnitRange>& units) {
  const std::int64_t tokens = share.local.tokens;
  const bool head = holds(units, head_unit(share.model.layers));
  if (holds(units, 0)) rows.batch("tokens", tokens, DType::i32);
  if (head) rows.batch("labels", tokens, DType::i32);
  rows.batch("position", tokens, DType::i32);
  rows.batch("document", tokens, DType::i32);
  rows.batch("global_token", tokens, DType::i64);
  if (head) rows.batch("loss_weight", tokens, DType::f32);
}

void add_units(Rows& rows, const Share& share, const std::vector<UnitRange>& units) {
  const std::int64_t layers = share.model.layers;
  rows.chunk = 0;
  for (const UnitRange& range : units) {
    for (rows.unit = range.begin; rows.unit < range.end; ++rows.unit) {
      switch (kind_of_unit(rows.unit, layers)) {
        case UnitKind::embedding: break;
        case UnitKind::block: add_block(rows, share, block_prefix(rows.unit)); break;
        case UnitKind::head: add_head(rows, share); break;
      }
    }
    ++rows.chunk;
  }
  rows.unit = rows.chunk = -1;
}

void add_transients(Rows& rows, const Share& share, const std::vector<UnitRange>& units) {
  const std::int64_t layers = share.model.layers;
  const std::int64_t hidden = share.model.hidden;
  const LocalShape& local = share.local;
  const bool blocks = count_blocks(units, layers) > 0;
  if (blocks) rows.transient("branch", local.stream_rows, hidden);
  rows.transient("d_stream.0", local.stream_rows, hidden);
  rows.transient("d_stream.1", local.stream_rows, hidden);
  if (blocks) add_block_transients(rows, share);
  if (share.input.sequence_parallel) {
    rows.transient("stream.gathered", local.tokens, hidden);
    rows.transient("stream.partial", local.tokens, hidden);
    if (blocks) {
      rows.transient("stream.d_attention", local.tokens, hidden);
      rows.transient("stream.d_mlp", local.tokens, hidden);
    }
  }
  if (share.input.fp32_sums) {
    rows.add("stream.sum", Shape{local.tokens, hidden}, DType::f32, Lifetime::transient);
  }
  add_messages(rows, share, units);
  if (!holds(units, head_unit(layers))) return;
  rows.unit = head_unit(layers);
  add_head_transients(rows, share);
}

}  // namespace

std::vector<ActivationSpec> make_activations(const ActivationInput& input,
                                             const std::vector<UnitRange>& units) {
  const Share share{input, input.model,
                    local_shape({input.model, input.mesh, input.micro_batch_size,
                                 input.sequence_parallel, input.split_vocabulary})};
  Rows rows;
  rows.compute = input.compute;
  add_batch(rows, share, units);
  add_units(rows, share, units);
  add_transients(rows, share, units);
  return std::move(rows.list);
}

std::string gradient_row(int unit) { return "d_stream." + std::to_string(unit % 2); }

std::string input_row(int unit, std::int64_t layers) {
  return unit == head_unit(layers) ? "head.input" : block_prefix(unit) + "input";
}

std::int64_t head_chunk(std::int64_t vocabulary, std::int64_t tokens, DType compute) {
  constexpr std::int64_t most_bytes = std::int64_t{256} << 20;
  constexpr std::int64_t fewest_tokens = 64;
  constexpr std::int64_t multiple = 16;  // whole tiles of a matrix unit
  const std::int64_t row_bytes = std::max<std::int64_t>(1, vocabulary * size_of(compute));
  const std::int64_t fitting = std::max(fewest_tokens, most_bytes / row_bytes);
  const std::int64_t quarters = tokens > 4 * fewest_tokens ? 4 : tokens > fewest_tokens ? 2 : 1;
  // Chunks of nearly equal size: the last one would otherwise be small and slow.
  const std::int64_t chunks = std::max(quarters, (tokens + fitting - 1) / fitting);
  const std::int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(tokens, (even + multiple - 1) / multiple * multiple);
}

}  // namespace trainctl
