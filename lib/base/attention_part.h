// The keys that a query sees, and the division of cuDNN's attention into executions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl {

/// Limits which keys of its document a query sees, besides the causal mask: the last `window` keys
/// including its own, or the keys of its chunk of `chunk` tokens. No limit if 0. At most one of
/// them is set.
struct KeyLimits {
  std::int64_t window = 0, chunk = 0;

  constexpr bool any() const { return window > 0 || chunk > 0; }
  /// The first position seen by a query at `position` of a document that begins at `document`. It
  /// never decreases from a query to the next.
  constexpr std::int64_t first_seen(std::int64_t position, std::int64_t document) const {
    const std::int64_t inside = position - document;
    if (window > 0 && inside >= window) return position - window + 1;
    return chunk > 0 ? document + inside / chunk * chunk : document;
  }
  /// Total number of keys seen by the queries of a document of `length` tokens.
  double pairs(std::int64_t length) const {
    const auto triangle = [](double tokens) { return tokens * (tokens + 1) / 2; };
    const double all = static_cast<double>(length);
    if (window > 0) {
      const double far = static_cast<double>(std::max<std::int64_t>(0, length - window));
      return triangle(all) - triangle(far);
    }
    if (chunk == 0) return triangle(all);
    return static_cast<double>(length / chunk) * triangle(static_cast<double>(chunk)) +
           triangle(static_cast<double>(length % chunk));
  }
  bool operator==(const KeyLimits&) const = default;
};

// Divides cuDNN's attention into executions to keep its temporary memory small. The plan and the
// executions both use this code, so that the plan counts the bytes that are used.

/// Causal attention over whole sequences of one length, with 16-bit elements.
struct AttentionExtents {
  std::int64_t sequences = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool ordered = true;  // the backward pass sums in a fixed order: repeated calls are bit-identical
  friend bool operator==(const AttentionExtents&, const AttentionExtents&) = default;
};

/// Temporary memory of one part of the backward pass: at most the first limit if parts can be that
/// small, and never more than the second. Eight heads of 8,192 tokens, which keep a Hopper busy for
/// three quarters of the time, need a little more than 1 GiB.
inline constexpr std::int64_t wished_attention_bytes = std::int64_t{1280} << 20;
inline constexpr std::int64_t max_attention_bytes = std::int64_t{2} << 30;

inline constexpr std::int64_t attention_block = 256;  // bytes; the sizes below are multiples of it

constexpr std::int64_t in_attention_blocks(std::int64_t bytes) {
  return (bytes + attention_block - 1) / attention_block * attention_block;
}

/// Bytes of an fp32 sum for each query of a part; then, if the order of sums is free, bytes of the
/// fp32 sums of the query gradients.
constexpr std::int64_t attention_mean_bytes(const AttentionExtents& part) {
  return in_attention_blocks(part.sequences * part.heads * part.length * 4);
}
constexpr std::int64_t attention_sum_bytes(const AttentionExtents& part) {
  if (part.ordered) return 0;
  return in_attention_blocks(part.sequences * part.heads * part.length * part.head_dim * 4);
}

/// Total temporary memory of the backward pass: gradients of scores, which sums in a fixed order
/// need in memory; key gradients of every query head if heads share keys; the sums above; and a
/// block of the library's own.
constexpr std::int64_t attention_part_bytes(const AttentionExtents& part) {
  const std::int64_t queries = part.sequences * part.heads * part.length;
  const std::int64_t scores = part.ordered ? queries * part.length * 2 : 0;
  const std::int64_t shared = part.heads > part.kv_heads ? 2 * queries * part.head_dim * 2 : 0;
  return in_attention_blocks(scores) + in_attention_blocks(shared) + attention_mean_bytes(part) +
         attention_sum_bytes(part) + attention_block;
}

/// The byte count of a call's memory tells whether its sums are ordered: an even number of blocks
/// if they are, an odd one if not.
constexpr bool is_ordered(std::int64_t bytes) { return bytes / attention_block % 2 == 0; }

/// The work of one execution of the backward pass, which is divided into equal parts, the largest
/// that need at most `wished` bytes: whole sequences, or some KV heads of one sequence with the
/// query heads that share them. The forward pass needs no temporary memory and is one execution.
constexpr AttentionExtents attention_part(const AttentionExtents& all,
                                          std::int64_t wished = wished_attention_bytes) {
  const auto fits = [&](std::int64_t whole, std::int64_t parts, const AttentionExtents& part) {
    return whole % parts == 0 && attention_part_bytes(part) <= wished;
  };
  const std::int64_t group = all.heads / all.kv_heads;
  AttentionExtents part = all;
  part.sequences = 1;
  for (; part.kv_heads > 1 && !fits(all.kv_heads, part.kv_heads, part); part.heads -= group) {
    --part.kv_heads;
  }
  if (part.kv_heads == all.kv_heads) part.sequences = all.sequences;
  while (part.sequences > 1 && !fits(all.sequences, part.sequences, part)) --part.sequences;
  return part;
}

/// Temporary memory of a call whose backward pass is divided into such parts.
constexpr std::int64_t attention_bytes(const AttentionExtents& part) {
  const std::int64_t bytes = attention_part_bytes(part);
  return bytes + (is_ordered(bytes) == part.ordered ? 0 : attention_block);
}

}  // namespace trainctl
