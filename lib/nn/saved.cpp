#include "nn/saved.h"

#include <cmath>

namespace trainctl {

namespace {

AttentionShape attention_shape(const ModelShape& model, std::int64_t sequences) {
  return {.sequences = sequences,
          .query_length = model.seq_length,
          .key_length = model.seq_length,
          .heads = model.heads,
          .kv_heads = model.kv_heads,
          .head_dim = model.head_dim,
          .query_offset = 0,
          .scale = 1.0F / std::sqrt(static_cast<float>(model.head_dim))};
}

}  // namespace

BlockSaved place_block(const StageInput& input, int slot, std::int64_t layer) {
  const ModelShape& model = input.model;
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  const auto row = [&](const char* name) { return input.activations(slot, prefix + name); };
  const bool layernorm = model.family == Family::gpt2;
  BlockSaved saved;
  saved.x = row("input");
  saved.norm1 = {saved.x, row("norm1"), layernorm ? row("norm1.mean") : Tensor{},
                 row("norm1.rstd")};
  Attention::Saved& attention = saved.attention;
  attention.shape = attention_shape(model, input.micro_batch_size);
  attention.x = saved.norm1.y;
  attention.q = row("attention.q");
  attention.k = row("attention.k");
  attention.v = row("attention.v");
  attention.q_raw = model.qk_norm ? row("attention.q_raw") : attention.q;
  attention.k_raw = model.qk_norm ? row("attention.k_raw") : attention.k;
  if (model.qk_norm) {
    attention.q_rstd = row("attention.q_rstd");
    attention.k_rstd = row("attention.k_rstd");
  }
  attention.keys = attention.k;
  attention.values = attention.v;
  attention.context = row("attention.context");
  attention.logsumexp = row("attention.logsumexp");
  attention.y = input.activations(slot, "branch");
  saved.norm2 = {row("middle"), row("norm2"), layernorm ? row("norm2.mean") : Tensor{},
                 row("norm2.rstd")};
  saved.mlp = {.x = saved.norm2.y,
               .gate = layernorm ? Tensor{} : row("mlp.gate"),
               .up = row("mlp.up"),
               .act = row("mlp.act"),
               .y = input.activations(slot, "branch")};
  const bool last = layer + 1 == model.layers;
  saved.y = input.activations(
      slot, last ? "head.input" : "layers." + std::to_string(layer + 1) + ".input");
  return saved;
}

SlotSaved place_slot(const StageInput& input, int slot) {
  const auto row = [&](const std::string& name) { return input.activations(slot, name); };
  SlotSaved saved;
  saved.embedded = row("layers.0.input");
  for (std::int64_t layer = 0; layer < input.model.layers; ++layer) {
    saved.blocks.push_back(place_block(input, slot, layer));
  }
  const bool layernorm = input.model.family == Family::gpt2;
  saved.final_norm = {row("head.input"), row("head.norm"),
                      layernorm ? row("head.norm.mean") : Tensor{}, row("head.norm.rstd")};
  saved.head = {.x = saved.final_norm.y,
                .d_x = row("head.d_norm"),
                .logits = row("head.logits"),
                .row_max = row("head.row_max"),
                .row_sum = row("head.row_sum"),
                .target = row("head.target")};
  return saved;
}

BlockGradients place_gradients(const StageInput& input, int parity) {
  const ModelShape& model = input.model;
  const auto row = [&](const std::string& name) { return input.activations(0, name); };
  const bool masked = model.hidden_dropout > 0;
  BlockGradients g;
  g.dy = row("d_stream." + std::to_string(1 - parity));
  g.dx = row("d_stream." + std::to_string(parity));
  g.d_norm = row("d_norm");
  g.d_middle = row("d_middle");
  g.attention = {.dy = masked ? row("d_branch.attention") : g.d_middle,
                 .d_context = row("d_context"),
                 .dq = row("d_q"),
                 .dk = row("d_k"),
                 .dv = row("d_v"),
                 .dx = g.d_norm};
  g.mlp = {.dy = masked ? row("d_branch.mlp") : g.dy,
           .dgate = model.family == Family::gpt2 ? Tensor{} : row("d_gate"),
           .dup = row("d_ffn"),
           .dx = g.d_norm};
  return g;
}

}  // namespace trainctl
