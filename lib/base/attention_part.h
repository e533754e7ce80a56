// How cuDNN's attention is cut into executions so that its temporary memory stays small. One owner,
// so that the plan counts the bytes that the executions are given.
#pragma once

#include <cstdint>

namespace trainctl {

/// Causal attention of whole sequences of one length, elements of 16 bits.
struct AttentionExtents {
  std::int64_t sequences = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  friend bool operator==(const AttentionExtents&, const AttentionExtents&) = default;
};

/// Whole sequences, or of one sequence some heads of the keys with the query heads that share them.
struct AttentionPart {
  std::int64_t sequences = 0, kv_heads = 0;
  std::int64_t bytes = 0;  // of temporary memory
};

/// A part takes no more than the first if it can be so small, and never more than the second. Two
/// heads of 8,192 tokens, which occupy a Hopper, need a little more than 256 MiB.
inline constexpr std::int64_t wished_attention_bytes = std::int64_t{320} << 20;
inline constexpr std::int64_t most_attention_bytes = std::int64_t{2} << 30;

/// What the backward pass needs: gradients of scores, which have to be in memory for sums in one
/// order; key gradients of every query head where heads share keys; a sum for each query; and a
/// block of the library's own.
constexpr std::int64_t attention_part_bytes(const AttentionExtents& part) {
  constexpr std::int64_t block = 256;  // multiples of it
  const auto blocks = [](std::int64_t bytes) { return (bytes + block - 1) / block * block; };
  const std::int64_t queries = part.sequences * part.heads * part.length;
  const std::int64_t shared = part.heads > part.kv_heads ? 2 * queries * part.head_dim * 2 : 0;
  return blocks(queries * part.length * 2) + blocks(shared) + blocks(queries * 4) + block;
}

/// The largest part that is as small as wished; all parts are alike.
constexpr AttentionPart attention_part(const AttentionExtents& all,
                                       std::int64_t wished = wished_attention_bytes) {
  const std::int64_t group = all.heads / all.kv_heads;
  const auto bytes = [&](std::int64_t sequences, std::int64_t kv_heads) {
    return attention_part_bytes({sequences, all.length, kv_heads * group, kv_heads, all.head_dim});
  };
  const auto fits = [&](std::int64_t whole, std::int64_t parts, std::int64_t part_bytes) {
    return whole % parts == 0 && part_bytes <= wished;
  };
  AttentionPart part{1, all.kv_heads, 0};
  while (part.kv_heads > 1 && !fits(all.kv_heads, part.kv_heads, bytes(1, part.kv_heads))) {
    --part.kv_heads;
  }
  if (part.kv_heads == all.kv_heads) part.sequences = all.sequences;
  while (part.sequences > 1 &&
         !fits(all.sequences, part.sequences, bytes(part.sequences, part.kv_heads))) {
    --part.sequences;
  }
  part.bytes = bytes(part.sequences, part.kv_heads);
  return part;
}

}  // namespace trainctl
