#include "plan/activations.h"

#include <algorithm>

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
  void transient_statistic(const std::string& name, std::int64_t rows) {
    list.push_back({name, Shape{rows}, DType::f32, Lifetime::transient});
  }
};

void add_norm(Rows& rows, const ModelShape& model, const std::string& name, std::int64_t tokens) {
  rows.kept(name, tokens, model.hidden);
  if (model.family == Family::gpt2) rows.statistic(name + ".mean", tokens);
  rows.statistic(name + ".rstd", tokens);
}

void add_block(Rows& rows, const ModelShape& model, const std::string& prefix,
               std::int64_t tokens) {
  const std::int64_t q = model.q_features();
  const std::int64_t kv = model.kv_features();
  const std::string attention = prefix + "attention.";
  rows.kept(prefix + "input", tokens, model.hidden);
  add_norm(rows, model, prefix + "norm1", tokens);
  if (model.qk_norm) {
    rows.kept(attention + "q_raw", tokens, q);
    rows.kept(attention + "k_raw", tokens, kv);
    rows.statistic(attention + "q_rstd", tokens * model.heads);
    rows.statistic(attention + "k_rstd", tokens * model.kv_heads);
  }
  rows.kept(attention + "q", tokens, q);
  rows.kept(attention + "k", tokens, kv);
  rows.kept(attention + "v", tokens, kv);
  rows.kept(attention + "context", tokens, q);
  rows.statistic(attention + "logsumexp", tokens * model.heads);
  rows.kept(prefix + "middle", tokens, model.hidden);
  add_norm(rows, model, prefix + "norm2", tokens);
  if (model.family == Family::llama) rows.kept(prefix + "mlp.gate", tokens, model.ffn);
  rows.kept(prefix + "mlp.up", tokens, model.ffn);
  rows.kept(prefix + "mlp.act", tokens, model.ffn);
}

void add_transients(Rows& rows, const ModelShape& model, std::int64_t tokens, std::int64_t chunk) {
  for (const char* name : {"branch", "d_stream.0", "d_stream.1", "d_middle", "d_norm"}) {
    rows.transient(name, tokens, model.hidden);
  }
  if (model.hidden_dropout > 0) {
    rows.transient("d_branch.attention", tokens, model.hidden);
    rows.transient("d_branch.mlp", tokens, model.hidden);
  }
  rows.transient("d_q", tokens, model.q_features());
  rows.transient("d_k", tokens, model.kv_features());
  rows.transient("d_v", tokens, model.kv_features());
  rows.transient("d_context", tokens, model.q_features());
  rows.transient("d_ffn", tokens, model.ffn);
  if (model.family == Family::llama) rows.transient("d_gate", tokens, model.ffn);
  rows.transient("head.logits", chunk, model.padded_vocab);
  for (const char* name : {"head.row_max", "head.row_sum", "head.target"}) {
    rows.transient_statistic(name, chunk);
  }
}

}  // namespace

std::vector<ActivationSpec> make_activations(const ModelShape& model, const Mesh& mesh,
                                             std::int64_t micro_batch_size, DType compute) {
  const std::int64_t tokens = micro_batch_size * model.seq_length / mesh.cp;
  Rows rows;
  rows.compute = compute;
  for (const char* name : {"tokens", "labels", "position", "document"}) {
    rows.batch(name, tokens, DType::i32);
  }
  rows.batch("global_token", tokens, DType::i64);
  rows.batch("loss_weight", tokens, DType::f32);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    add_block(rows, model, "layers." + std::to_string(layer) + ".", tokens);
  }
  rows.kept("head.input", tokens, model.hidden);
  add_norm(rows, model, "head.norm", tokens);
  rows.kept("head.d_norm", tokens, model.hidden);
  add_transients(rows, model, tokens, head_chunk(model, tokens, compute));
  return std::move(rows.list);
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
