#include "plan/model/form.h"

#include <algorithm>
#include <initializer_list>

#include "base/integers.h"
#include "base/token_layout.h"

namespace trainctl {

LayerForm layer_form(const ModelShape& model, std::int64_t layer) {
  const LayerKind& kind = model.kind(layer);
  LayerForm form{.hidden = model.hidden,
                 .keys = model.seq_length,
                 .longest = model.longest_sequence(),
                 .norm = model.norm_kind,
                 .norms = model.norm_placement,
                 .copies_gradients = model.hidden_dropout > 0 || model.residual_multiplier != 1 ||
                                     norms_after(model.norm_placement),
                 .attention = {model.heads, kind.kv_heads, model.head_dim, kind.qk_norm, kind.rope,
                               model.qk_norm_form == QkNormForm::whole, kind.limits,
                               kind.temperature, kind.sinks, model.output_gate,
                               kind.qk_norm && model.qk_norm_form != QkNormForm::l2},
                 .ffn = kind.experts ? 0 : kind.ffn,
                 .gated = model.gated_mlp};
  if (!kind.experts) return form;
  form.routed = true;
  form.experts = model.experts;
  form.topk = model.topk;
  form.expert_ffn = model.expert_ffn;
  form.shared_ffn = model.shared_ffn;
  form.shared_gate = model.shared_gate;
  form.routing_group = model.routing_group;
  form.capacity_group = model.capacity_group;
  form.capacity_factor = model.capacity_factor;
  form.rounds = model.rounds;
  form.free_counts = model.free_counts;
  return form;
}

int first_block_with(const ModelShape& model, bool experts) {
  for (int unit = 1; unit <= model.layers; ++unit) {
    if (model.kind(unit - 1).experts == experts) return unit;
  }
  return 0;
}

std::int64_t dense_layers_first(const ModelShape& model) {
  const int first = first_block_with(model, true);
  return first > 0 ? first - 1 : model.layers;
}

namespace {

/// Saturates instead of overflowing; checks report invalid sizes.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  double result = 1;
  for (const std::int64_t factor : factors) result *= static_cast<double>(factor);
  return static_cast<std::int64_t>(std::min(result, 0x1p60));
}

/// Sets a rank's tokens of a micro-batch and its rows of the residual stream.
void set_stream(auto& local, std::int64_t sequence, const MeshShare& share) {
  local.tokens = share.micro_batch_size * sequence / share.mesh.cp;
  local.stream_rows = share.sequence_parallel ? local.tokens / share.mesh.tp : local.tokens;
}

/// A rank's share of a micro-batch's tokens, and the number of parts of an operator's features.
std::int64_t rows_of(SplitBy split, std::int64_t tokens, const Mesh& mesh) {
  return split == SplitBy::tokens ? tokens / mesh.tp : tokens;
}
std::int64_t parts_of(SplitBy split, const Mesh& mesh) {
  return split == SplitBy::features ? mesh.tp : 1;
}

/// Sets the upper bounds of routed rows. An expert gets a token at most once, but with rounds
/// perhaps twice. Rows that several ranks gather are padded, chunk by chunk, to the longest rank's
/// length; each chunk may have an additional row from every rank for every expert.
void add_routing(const LayerForm& form, const Mesh& mesh, const ExchangeRule& rule,
                 LocalShape& local) {
  local.experts = form.experts / mesh.ep;
  local.routed_tokens = rule.by_stream ? local.stream_rows : local.tokens;
  local.sent_tokens = rule.by_slice ? local.tokens / mesh.tp : local.routed_tokens;
  local.met_tokens = local.sent_tokens * rule.parts;
  local.routing_ranks = rule.by_stream ? mesh.cp * mesh.tp : mesh.cp;
  // The groups among this rank's `tokens`, in sequences of `length` tokens; `size` is a group's
  // tokens in the longest sequences.
  const auto groups = [&](std::int64_t size, std::int64_t tokens, std::int64_t length) {
    const std::int64_t group = group_at_length(size, form.longest, length);
    return std::max<std::int64_t>(1, mesh.cp * tokens / std::max<std::int64_t>(1, group));
  };
  local.routing_groups = groups(form.routing_group, local.tokens, form.keys);
  local.counted_rows = product({local.routing_groups, form.counts_of_group()});
  local.capacity = moe_capacity(form);
  const auto most = [&](std::int64_t experts, std::int64_t ranks, std::int64_t length) {
    const auto there = [&](std::int64_t tokens) {
      return length == form.keys ? tokens : tokens * length / form.keys;
    };
    const std::int64_t choices = form.rounds ? form.topk : std::min(form.topk, experts);
    const std::int64_t rows = product({ranks, there(local.sent_tokens), choices});
    if (local.capacity == 0) return rows;
    LayerForm other = form;
    other.keys = length;
    return std::min(
        rows, product({experts, ranks, groups(form.capacity_group, there(local.tokens), length),
                       moe_capacity(other)}));
  };
  local.routed_rows = most(form.experts, 1, form.keys);
  // Other replicas may send longer sequences.
  local.expert_rows = most(local.experts, mesh.ep * rule.parts, form.longest);
  local.received_rows = most(local.experts, mesh.ep, form.longest);
  const std::int64_t more =
      rule.chunks > 1 && rule.parts > 1 ? product({rule.chunks, mesh.ep, local.experts}) : 0;
  local.gathered_rows = product({rule.parts, local.received_rows + more});
  local.expert_ffn = form.expert_ffn / mesh.etp;
  local.shared_ffn = form.shared_ffn / mesh.tp;
}

}  // namespace

EndShape end_shape(const ModelShape& model, const MeshShare& share, SplitBy head) {
  EndShape local;
  set_stream(local, model.seq_length, share);
  local.vocabulary = model.padded_vocab / parts_of(head, share.mesh);
  local.head_rows = rows_of(head, local.tokens, share.mesh);
  return local;
}

LocalShape local_shape(const LayerForm& form, const MeshShare& share, BlockSplit split,
                       const ExchangeRule& exchange) {
  const Mesh& mesh = share.mesh;
  LocalShape local;
  set_stream(local, form.keys, share);
  const AttentionForm& attention = form.attention;
  local.attention_rows = rows_of(split.attention, local.tokens, mesh);
  local.heads = attention.heads / parts_of(split.attention, mesh);
  local.kv_heads = std::max<std::int64_t>(1, attention.kv_heads / parts_of(split.attention, mesh));
  local.q = local.heads * attention.head_dim;
  local.kv = local.kv_heads * attention.head_dim;
  local.head_ranks = split.attention == SplitBy::tokens ? mesh.tp : 1;
  local.mlp_rows = rows_of(split.feed_forward, local.tokens, mesh);
  if (!form.has_experts()) local.ffn = form.ffn / parts_of(split.feed_forward, mesh);
  add_routing(form, mesh, exchange, local);
  return local;
}

std::int64_t moe_capacity(const LayerForm& form) {
  if (form.capacity_factor <= 0) return 0;
  return expert_places(form.capacity_factor, form.topk, std::max<std::int64_t>(1, form.experts),
                       group_at_length(form.capacity_group, form.longest, form.keys));
}

std::int64_t head_tokens(const ModelShape& model, const EndShape& local, DType compute,
                         DeviceKind device, std::int64_t most) {
  if (model.whole_logits) return local.head_rows;
  return head_chunk(local.vocabulary, local.head_rows, compute, device, most);
}

namespace {

/// The fewest chunks within the limits for a CPU.
std::int64_t chunks_by_bytes(std::int64_t vocabulary, std::int64_t tokens, DType compute) {
  constexpr std::int64_t max_bytes = std::int64_t{256} << 20;
  constexpr std::int64_t fewest_tokens = 64;
  const std::int64_t row_bytes = std::max<std::int64_t>(1, vocabulary * size_of(compute));
  const std::int64_t fitting = std::max(fewest_tokens, max_bytes / row_bytes);
  const std::int64_t quarters = tokens > 4 * fewest_tokens ? 4 : tokens > fewest_tokens ? 2 : 1;
  return std::max(quarters, divide_up(tokens, fitting));
}

}  // namespace

std::int64_t head_chunk(std::int64_t vocabulary, std::int64_t tokens, DType compute,
                        DeviceKind device, std::int64_t most) {
  constexpr std::int64_t on_device = 8192;
  constexpr std::int64_t multiple = 16;  // a whole tile of a matrix unit
  const bool by_bytes = most == 0 && device == DeviceKind::cpu;
  if (most == 0) most = by_bytes ? tokens : on_device;
  const std::int64_t chunks =
      by_bytes ? chunks_by_bytes(vocabulary, tokens, compute) : divide_up(tokens, most);
  // Chunks of nearly equal size, because a small last chunk would be slow.
  const std::int64_t even = round_up(divide_up(tokens, chunks), multiple);
  return std::min({tokens, most, even});
}

}  // namespace trainctl
