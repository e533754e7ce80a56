#include "plan/tables/local_shape.h"

#include "base/expert_places.h"
#include "base/round_up.h"
#include "base/token_layout.h"

#include <algorithm>
#include <initializer_list>

namespace trainctl {

namespace {

/// Absurd sizes must not overflow; checks find them.
std::int64_t product(std::initializer_list<std::int64_t> factors) {
  double result = 1;
  for (const std::int64_t factor : factors) result *= static_cast<double>(factor);
  return static_cast<std::int64_t>(std::min(result, 0x1p60));
}

/// What the router may send at most. A token chooses different experts, so each expert gets it
/// once; in rounds it may choose one again that it has. What several ranks gather is cut into parts
/// of the longest one's length, chunk by chunk, each of which may have a row more from every rank
/// for every expert.
void add_routing(const LocalShapeInput& input, LocalShape& local) {
  const ModelShape& model = input.model;
  const Mesh& mesh = input.mesh;
  const ExchangeRule& rule = input.exchange;
  local.routed_tokens = rule.by_stream ? local.stream_rows : local.tokens;
  local.sent_tokens = rule.by_slice ? local.tokens / mesh.tp : local.routed_tokens;
  local.routing_ranks = rule.by_stream ? mesh.cp * mesh.tp : mesh.cp;
  // Of `tokens` of this rank, with sequences of some length, in groups that have `size` tokens of
  // the longest ones.
  const auto groups = [&](std::int64_t size, std::int64_t tokens, std::int64_t length) {
    const std::int64_t group = group_at_length(size, model.longest_sequence(), length);
    return std::max<std::int64_t>(1, mesh.cp * tokens / std::max<std::int64_t>(1, group));
  };
  local.routing_groups = groups(model.routing_group, local.tokens, model.seq_length);
  local.counted_rows = product({local.routing_groups, model.rounds        ? model.topk
                                                      : model.free_counts ? 2
                                                                          : 1});
  local.capacity = moe_capacity(model);
  const auto most = [&](std::int64_t experts, std::int64_t ranks, std::int64_t length) {
    const auto there = [&](std::int64_t tokens) {
      return length == model.seq_length ? tokens : tokens * length / model.seq_length;
    };
    const std::int64_t choices = model.rounds ? model.topk : std::min(model.topk, experts);
    const std::int64_t rows = product({ranks, there(local.sent_tokens), choices});
    if (local.capacity == 0) return rows;
    return std::min(
        rows, product({experts, ranks, groups(model.capacity_group, there(local.tokens), length),
                       moe_capacity(model.of_length(length))}));
  };
  const std::int64_t longest = model.longest_sequence();  // of those that others send
  local.routed_rows = most(model.experts, 1, model.seq_length);
  local.expert_rows = most(local.experts, mesh.ep * rule.parts, longest);
  local.received_rows = most(local.experts, mesh.ep, longest);
  const std::int64_t more =
      rule.chunks > 1 && rule.parts > 1 ? product({rule.chunks, mesh.ep, local.experts}) : 0;
  local.gathered_rows = product({rule.parts, local.received_rows + more});
}

}  // namespace

LocalShape local_shape(const LocalShapeInput& input) {
  const ModelShape& model = input.model;
  const Mesh& mesh = input.mesh;
  LocalShape local;
  local.tokens = input.micro_batch_size * model.seq_length / mesh.cp;
  local.stream_rows = input.sequence_parallel ? local.tokens / mesh.tp : local.tokens;
  const auto rows = [&](SplitBy split) {
    return split == SplitBy::tokens ? local.tokens / mesh.tp : local.tokens;
  };
  const auto parts = [&](SplitBy split) { return split == SplitBy::features ? mesh.tp : 1; };
  const SplitBy attention = input.block.attention;
  local.attention_rows = rows(attention);
  local.heads = model.heads / parts(attention);
  local.kv_heads = std::max<std::int64_t>(1, model.kv_heads / parts(attention));
  local.q = local.heads * model.head_dim;
  local.kv = local.kv_heads * model.head_dim;
  local.head_ranks = attention == SplitBy::tokens ? mesh.tp : 1;
  local.mlp_rows = rows(input.block.feed_forward);
  local.ffn = model.ffn / parts(input.block.feed_forward);
  local.vocabulary = model.padded_vocab / parts(input.head);
  local.head_rows = rows(input.head);
  local.experts = model.experts / mesh.ep;
  add_routing(input, local);
  local.expert_ffn = model.expert_ffn / mesh.etp;
  local.shared_ffn = model.shared_ffn / mesh.tp;
  return local;
}

std::int64_t moe_capacity(const ModelShape& model) {
  if (model.capacity_factor <= 0) return 0;
  return expert_places(
      model.capacity_factor, model.topk, std::max<std::int64_t>(1, model.experts),
      group_at_length(model.capacity_group, model.longest_sequence(), model.seq_length));
}

std::int64_t head_tokens(const ModelShape& model, const LocalShape& local, DType compute,
                         const HeadChunkRule& rule) {
  if (model.whole_logits) return local.head_rows;
  return head_chunk(local.vocabulary, local.head_rows, compute, rule);
}

namespace {

/// Fewest chunks on a CPU.
std::int64_t chunks_by_bytes(std::int64_t vocabulary, std::int64_t tokens, DType compute) {
  constexpr std::int64_t most_bytes = std::int64_t{256} << 20;
  constexpr std::int64_t fewest_tokens = 64;
  const std::int64_t row_bytes = std::max<std::int64_t>(1, vocabulary * size_of(compute));
  const std::int64_t fitting = std::max(fewest_tokens, most_bytes / row_bytes);
  const std::int64_t quarters = tokens > 4 * fewest_tokens ? 4 : tokens > fewest_tokens ? 2 : 1;
  return std::max(quarters, divide_up(tokens, fitting));
}

}  // namespace

std::int64_t head_chunk(std::int64_t vocabulary, std::int64_t tokens, DType compute,
                        const HeadChunkRule& rule) {
  constexpr std::int64_t on_device = 8192;
  constexpr std::int64_t multiple = 16;  // whole tiles of a matrix unit
  const bool by_bytes = rule.most == 0 && rule.device == DeviceKind::cpu;
  const std::int64_t most = by_bytes ? tokens : rule.most > 0 ? rule.most : on_device;
  const std::int64_t chunks =
      by_bytes ? chunks_by_bytes(vocabulary, tokens, compute) : divide_up(tokens, most);
  // Chunks of nearly equal size: the last one would otherwise be small and slow.
  const std::int64_t even = round_up(divide_up(tokens, chunks), multiple);
  return std::min({tokens, most, even});
}

}  // namespace trainctl
