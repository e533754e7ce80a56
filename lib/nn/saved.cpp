#include "nn/saved.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/at.h"
#include "plan/tables/activations.h"

namespace trainctl {

namespace {

bool by_token(const StageInput& input) { return input.tp.stream == Layout::tokens; }

/// The same at the vocabulary: only a split one needs all tokens.
Tensor vocabulary_tokens(const StageInput& input, const char* name, const Tensor& own) {
  return by_token(input) && input.split_vocabulary ? input.activations(0, name) : own;
}

/// A tensor of all tokens that is needed for a moment: `own` where the stream is not split.
Tensor all_tokens(const StageInput& input, const char* name, const Tensor& own) {
  return by_token(input) ? input.activations(0, name) : own;
}

/// The heads of this rank follow from the rows of `q` and `k`.
AttentionShape attention_shape(const StageInput& input, const Tensor& q, const Tensor& k) {
  const ModelShape& model = input.model;
  return {.sequences = input.micro_batch_size,
          .query_length = model.seq_length,
          .key_length = model.seq_length,
          .heads = q.columns() / model.head_dim,
          .kv_heads = k.columns() / model.head_dim,
          .head_dim = model.head_dim,
          .query_offset = 0,
          .scale = 1.0F / std::sqrt(static_cast<float>(model.head_dim))};
}

int chunk_of(const StageInput& input, int unit) {
  int chunk = 0;
  while (!at(input.units, chunk).holds(unit)) ++chunk;
  return chunk;
}

/// Where `unit` leaves its output: what is sent to another stage, or the next unit's input.
Tensor output_of(const StageInput& input, int view, int unit) {
  const int chunk = chunk_of(input, unit);
  const bool sent =
      unit + 1 == at(input.units, chunk).end && input.places.sends(input.stage, chunk);
  return input.activations(
      view, sent ? chunk_prefix(chunk) + "output" : input_row(unit + 1, input.model.layers));
}

/// Where `unit` leaves the gradient of its input: the same downwards.
Tensor input_gradient_of(const StageInput& input, int view, int unit) {
  const int chunk = chunk_of(input, unit);
  const bool sent =
      unit == at(input.units, chunk).begin && input.places.receives(input.stage, chunk);
  return input.activations(view, sent ? chunk_prefix(chunk) + "d_input" : gradient_row(unit - 1));
}

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
  const Tensor partial = all_tokens(input, "stream.partial", g.d_norm);
  const Tensor attention_dy = masked ? row("attention.d_branch") : g.d_middle;
  g.attention = {.dy = attention_dy,
                 .all_dy = by_token(input) ? row("attention.d_gathered") : attention_dy,
                 .d_context = shared("d_context"),
                 .dq = row("attention.d_q"),
                 .dk = row("attention.d_k"),
                 .dv = row("attention.d_v"),
                 .partial_dx = partial,
                 .dx = g.d_norm};
  const Tensor mlp_dy = masked ? row("mlp.d_branch") : g.dy;
  g.mlp = {.dy = mlp_dy,
           .all_dy = by_token(input) ? row("mlp.d_gathered") : mlp_dy,
           .dgate = model.gated_mlp ? row("mlp.d_gate") : Tensor{},
           .dup = row("mlp.d_up"),
           .partial_dx = partial,
           .dx = g.d_norm};
  return g;
}

}  // namespace

BlockSaved place_block(const StageInput& input, int view, std::int64_t layer,
                       const std::string& before) {
  const ModelShape& model = input.model;
  const int unit = static_cast<int>(layer) + 1;
  const std::string prefix = before + block_prefix(unit);
  const auto row = [&](const char* name) { return input.activations(view, prefix + name); };
  const bool has_mean = model.norm_kind == NormKind::layer_norm;
  BlockSaved saved;
  saved.x = input.activations(view, input_row(unit, model.layers));
  saved.norm1 = {saved.x, row("norm1"), has_mean ? row("norm1.mean") : Tensor{}, row("norm1.rstd")};
  Attention::Saved& attention = saved.attention;
  attention.x = saved.norm1.y;
  attention.all_x = all_tokens(input, "stream.gathered", attention.x);
  attention.q = row("attention.q");
  attention.k = row("attention.k");
  attention.v = row("attention.v");
  attention.shape = attention_shape(input, attention.q, attention.k);
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
  attention.y = input.activations(view, "branch");
  attention.partial = all_tokens(input, "stream.partial", attention.y);
  saved.norm2 = {row("middle"), row("norm2"), has_mean ? row("norm2.mean") : Tensor{},
                 row("norm2.rstd")};
  const Tensor branch = input.activations(view, "branch");
  saved.mlp = {.x = saved.norm2.y,
               .all_x = all_tokens(input, "stream.gathered", saved.norm2.y),
               .gate = model.gated_mlp ? row("mlp.gate") : Tensor{},
               .up = row("mlp.up"),
               .act = row("mlp.act"),
               .partial = all_tokens(input, "stream.partial", branch),
               .y = branch};
  saved.y = output_of(input, view, unit);
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
        saved.embedding.all_y = vocabulary_tokens(input, "stream.partial", saved.embedding.y);
      } else if (unit < head) {
        const bool again = std::binary_search(input.repeated.begin(), input.repeated.end(), unit);
        saved.blocks.push_back(place_block(input, view, unit - 1));
        saved.first.push_back(again ? place_block(input, view, unit - 1, "first.")
                                    : saved.blocks.back());
      } else {
        saved.final_norm = {row("head.input"), row("head.norm"),
                            has_mean ? row("head.norm.mean") : Tensor{}, row("head.norm.rstd")};
        saved.head = {.x = saved.final_norm.y,
                      .all_x = vocabulary_tokens(input, "stream.gathered", saved.final_norm.y),
                      .partial_dx = vocabulary_tokens(input, "stream.partial", row("head.d_norm")),
                      .dx = row("head.d_norm"),
                      .logits = row("head.logits"),
                      .stats = row("head.stats"),
                      .all_stats = row(input.split_vocabulary ? "head.all_stats" : "head.stats")};
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
        gradients.all_embedded = vocabulary_tokens(input, "stream.gathered", gradients.embedded);
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
