#include "plan/tables/activations.h"

#include <algorithm>
#include <cmath>

namespace trainctl {

namespace {

/// Collects rows; the sizes have the names of the list in the header.
struct Rows {
  std::vector<ActivationSpec> list;
  DType compute = DType::f32;

  void batch(const std::string& name, std::int64_t tokens, DType dtype) {
    list.push_back({"batch." + name, Shape{tokens}, dtype, Lifetime::batch});
  }
  void kept(const std::string& name, std::int64_t rows, std::int64_t features) {
    list.push_back({name, Shape{rows, features}, compute, Lifetime::kept});
  }
  void statistic(const std::string& name, std::int64_t rows) {
    list.push_back({name, Shape{rows}, DType::f32, Lifetime::kept});
  }
  void transient(const std::string& name, std::int64_t rows, std::int64_t features) {
    list.push_back({name, Shape{rows, features}, compute, Lifetime::transient});
  }
};

/// The sizes of one rank's share.
struct Share {
  const ModelShape& model;
  std::int64_t tokens = 0;  // of the micro-batch, 1/cp
  std::int64_t stream = 0;  // rows of the residual stream
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t ffn = 0;
  std::int64_t local_experts = 1;
  std::int64_t capacity = 0;     // slots of one expert for this rank's tokens
  std::int64_t expert_rows = 0;  // slots of one expert held here, from all ranks
  std::int64_t expert_ffn = 0;
  std::int64_t q() const { return heads * model.head_dim; }
  std::int64_t kv() const { return kv_heads * model.head_dim; }
  bool llama() const { return model.family == Family::llama; }
};

Share share_of(const ActivationInput& input) {
  const ModelShape& model = input.model;
  const Mesh& mesh = input.mesh;
  Share share{.model = model};
  share.tokens = input.micro_batch_size * model.seq_length / mesh.cp;
  share.stream = input.sequence_parallel ? share.tokens / mesh.tp : share.tokens;
  share.heads = model.heads / mesh.tp;
  share.kv_heads = std::max<std::int64_t>(1, model.kv_heads / mesh.tp);
  share.ffn = model.ffn / mesh.tp;
  share.local_experts = model.experts / mesh.ep;
  share.capacity = moe_capacity(model, share.stream);
  share.expert_rows = mesh.ep * mesh.etp * share.capacity;
  share.expert_ffn = model.expert_ffn / mesh.etp;
  return share;
}

void add_norm(Rows& rows, const Share& share, const std::string& name) {
  rows.kept(name, share.stream, share.model.hidden);
  if (!share.llama()) rows.statistic(name + ".mean", share.stream);
  rows.statistic(name + ".rstd", share.stream);
}

void add_experts(Rows& rows, const Share& share, const std::string& prefix) {
  const ModelShape& model = share.model;
  const std::string moe = prefix + "moe.";
  const Shape inner{share.local_experts, share.expert_rows, share.expert_ffn};
  const auto kept = [&](const std::string& name, Shape shape, DType dtype) {
    rows.list.push_back({moe + name, shape, dtype, Lifetime::kept});
  };
  kept("probs", {share.stream, model.experts}, DType::f32);
  kept("slot", {share.stream, model.topk}, DType::i32);
  kept("dispatched", {share.local_experts, share.expert_rows, model.hidden}, rows.compute);
  if (share.llama()) kept("gate", inner, rows.compute);
  kept("up", inner, rows.compute);
  kept("act", inner, rows.compute);
  kept("returned", {model.experts, share.capacity, model.hidden}, rows.compute);
}

void add_block(Rows& rows, const Share& share, const std::string& prefix) {
  const ModelShape& model = share.model;
  const std::string attention = prefix + "attention.";
  rows.kept(prefix + "input", share.stream, model.hidden);
  add_norm(rows, share, prefix + "norm1");
  if (model.qk_norm) {
    rows.kept(attention + "q_raw", share.tokens, share.q());
    rows.kept(attention + "k_raw", share.tokens, share.kv());
    rows.statistic(attention + "q_rstd", share.tokens * share.heads);
    rows.statistic(attention + "k_rstd", share.tokens * share.kv_heads);
  }
  rows.kept(attention + "q", share.tokens, share.q());
  rows.kept(attention + "k", share.tokens, share.kv());
  rows.kept(attention + "v", share.tokens, share.kv());
  rows.kept(attention + "context", share.tokens, share.q());
  rows.statistic(attention + "logsumexp", share.tokens * share.heads);
  rows.kept(prefix + "middle", share.stream, model.hidden);
  add_norm(rows, share, prefix + "norm2");
  if (model.experts > 1) return add_experts(rows, share, prefix);
  if (share.llama()) rows.kept(prefix + "mlp.gate", share.tokens, share.ffn);
  rows.kept(prefix + "mlp.up", share.tokens, share.ffn);
  rows.kept(prefix + "mlp.act", share.tokens, share.ffn);
}

void add_head(Rows& rows, const Share& share) {
  rows.kept("head.input", share.stream, share.model.hidden);
  add_norm(rows, share, "head.norm");
  rows.kept("head.d_norm", share.stream, share.model.hidden);
}

void add_mlp_transients(Rows& rows, const Share& share) {
  const ModelShape& model = share.model;
  if (model.experts == 1) {
    rows.transient("d_ffn", share.tokens, share.ffn);
    if (share.llama()) rows.transient("d_gate", share.tokens, share.ffn);
    return;
  }
  const std::int64_t held = share.local_experts * share.expert_rows;
  rows.transient("moe.send", model.experts * share.capacity, model.hidden);
  rows.transient("moe.d_dispatched", held, model.hidden);
  rows.transient("moe.d_ffn", held, share.expert_ffn);
  if (share.llama()) rows.transient("moe.d_gate", held, share.expert_ffn);
}

void add_block_transients(Rows& rows, const Share& share, const ActivationInput& input) {
  const std::int64_t hidden = share.model.hidden;
  rows.transient("d_middle", share.stream, hidden);
  rows.transient("d_norm", share.stream, hidden);
  if (share.model.hidden_dropout > 0) {
    rows.transient("d_branch.attention", share.stream, hidden);
    rows.transient("d_branch.mlp", share.stream, hidden);
  }
  rows.transient("d_q", share.tokens, share.q());
  rows.transient("d_k", share.tokens, share.kv());
  rows.transient("d_v", share.tokens, share.kv());
  rows.transient("d_context", share.tokens, share.q());
  add_mlp_transients(rows, share);
  if (input.mesh.cp == 1) return;
  for (const char* name : {"cp.k", "cp.v", "cp.d_k", "cp.d_v"}) {
    rows.transient(name, share.tokens, share.kv());
  }
}

/// Each chunk but the model's last sends its output on and receives its gradient; each but the
/// first the other way round.
void add_messages(Rows& rows, const Share& share, const ActivationInput& input,
                  const std::vector<UnitRange>& units) {
  const MessageRules& rules = input.messages;
  const bool overlapped = rules.mode == MessageMode::overlapped;
  const int end = static_cast<int>(share.model.layers) + 2;
  const auto add = [&](const std::string& name, DType dtype, bool kept) {
    rows.list.push_back({name, Shape{share.stream, share.model.hidden}, dtype,
                         kept ? Lifetime::kept : Lifetime::transient});
  };
  bool sends_gradients = false;
  for (std::size_t chunk = 0; chunk < units.size(); ++chunk) {
    const std::string prefix = "chunk." + std::to_string(chunk) + ".";
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
  if (sends_gradients && rules.casts) add("d_stream.sent", input.message_dtype, false);
}

void add_head_transients(Rows& rows, const Share& share, const ActivationInput& input) {
  // A whole vocabulary is looked up for the rank's own tokens, a split one for all.
  const std::int64_t tokens = input.split_vocabulary ? share.tokens : share.stream;
  ModelShape local = share.model;
  if (input.split_vocabulary) local.padded_vocab /= input.mesh.tp;
  const std::int64_t chunk = head_chunk(local, tokens, input.compute);
  rows.transient("head.logits", chunk, local.padded_vocab);
  const auto stats = [&](const std::string& name, std::int64_t ranks) {
    rows.list.push_back({name, Shape{3 * ranks, chunk}, DType::f32, Lifetime::transient});
  };
  stats("head.stats", 1);
  if (input.split_vocabulary) stats("head.all_stats", input.mesh.tp);
}

struct Holds {  // what a stage's units are
  bool embedding = false, blocks = false, head = false;
};

Holds holds_of(const std::vector<UnitRange>& units, std::int64_t layers) {
  Holds holds;
  for (const UnitRange& range : units) {
    if (range.begin == range.end) continue;
    holds.embedding = holds.embedding || range.begin == 0;
    holds.head = holds.head || range.end == layers + 2;
    holds.blocks = holds.blocks || (range.begin <= layers && range.end >= 2);
  }
  return holds;
}

void add_batch(Rows& rows, const Share& share, const Holds& holds) {
  if (holds.embedding) rows.batch("tokens", share.tokens, DType::i32);
  if (holds.head) rows.batch("labels", share.tokens, DType::i32);
  rows.batch("position", share.tokens, DType::i32);
  rows.batch("document", share.tokens, DType::i32);
  rows.batch("global_token", share.tokens, DType::i64);
  if (holds.head) rows.batch("loss_weight", share.tokens, DType::f32);
}

void add_transients(Rows& rows, const Share& share, const ActivationInput& input,
                    const std::vector<UnitRange>& units) {
  const Holds holds = holds_of(units, share.model.layers);
  const std::int64_t hidden = share.model.hidden;
  if (holds.blocks) rows.transient("branch", share.stream, hidden);
  rows.transient("d_stream.0", share.stream, hidden);
  rows.transient("d_stream.1", share.stream, hidden);
  if (holds.blocks) add_block_transients(rows, share, input);
  if (input.sequence_parallel) {
    rows.transient("stream.gathered", share.tokens, hidden);
    rows.transient("stream.partial", share.tokens, hidden);
    if (holds.blocks) {
      rows.transient("stream.d_attention", share.tokens, hidden);
      rows.transient("stream.d_mlp", share.tokens, hidden);
    }
  }
  if (input.fp32_sums) {
    rows.list.push_back(
        {"stream.sum", Shape{share.tokens, hidden}, DType::f32, Lifetime::transient});
  }
  add_messages(rows, share, input, units);
  if (holds.head) add_head_transients(rows, share, input);
}

}  // namespace

std::vector<ActivationSpec> make_activations(const ActivationInput& input,
                                             const std::vector<UnitRange>& units) {
  const Share share = share_of(input);
  const int layers = static_cast<int>(input.model.layers);
  Rows rows;
  rows.compute = input.compute;
  add_batch(rows, share, holds_of(units, layers));
  for (const UnitRange& range : units) {
    for (int unit = range.begin; unit < range.end; ++unit) {
      if (unit >= 1 && unit <= layers) {
        add_block(rows, share, "layers." + std::to_string(unit - 1) + ".");
      }
      if (unit == layers + 1) add_head(rows, share);
    }
  }
  add_transients(rows, share, input, units);
  return std::move(rows.list);
}

std::string gradient_row(int unit) { return "d_stream." + std::to_string(unit % 2); }

std::int64_t moe_capacity(const ModelShape& model, std::int64_t tokens) {
  const double slots = static_cast<double>(tokens * model.topk) * model.capacity_factor /
                       static_cast<double>(model.experts);
  return static_cast<std::int64_t>(std::ceil(slots));
}

std::string input_row(int unit, std::int64_t layers) {
  return unit == layers + 1 ? "head.input" : "layers." + std::to_string(unit - 1) + ".input";
}

std::int64_t head_chunk(const ModelShape& model, std::int64_t tokens, DType compute) {
  constexpr std::int64_t most_bytes = std::int64_t{256} << 20;
  constexpr std::int64_t fewest_tokens = 64;
  constexpr std::int64_t multiple = 16;  // whole tiles of a matrix unit
  const std::int64_t row_bytes = std::max<std::int64_t>(1, model.padded_vocab * size_of(compute));
  const std::int64_t fitting = std::max(fewest_tokens, most_bytes / row_bytes);
  const std::int64_t quarters = tokens > 4 * fewest_tokens ? 4 : tokens > fewest_tokens ? 2 : 1;
  // Chunks of nearly equal size: the last one would otherwise be small and slow.
  const std::int64_t chunks = std::max(quarters, (tokens + fitting - 1) / fitting);
  const std::int64_t even = (tokens + chunks - 1) / chunks;
  return std::min(tokens, (even + multiple - 1) / multiple * multiple);
}

}  // namespace trainctl
