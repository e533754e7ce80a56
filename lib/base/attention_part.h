// The keys that a query sees, and the executions into which the attention of cuDNN is cut.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl {

/// Which keys of its document a query sees, besides those after it, which it never does. The last
/// `window` keys up to its own, or those of its chunk of `chunk` tokens of the document. 0: all of
/// them. At most one of the two is given.
struct KeyLimits {
  std::int64_t window = 0, chunk = 0;

  constexpr bool any() const { return window > 0 || chunk > 0; }
  /// The first position that a query at `position` sees, of a document that begins at `document`.
  /// It does not fall from a query to a later one.
  constexpr std::int64_t first_seen(std::int64_t position, std::int64_t document) const {
    const std::int64_t inside = position - document;
    if (window > 0 && inside >= window) return position - window + 1;
    return chunk > 0 ? document + inside / chunk * chunk : document;
  }
  /// Keys that the queries of a document of `length` tokens see, together.
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

// How cuDNN's attention is cut into executions so that its temporary memory stays small. One owner,
// so that the plan counts the bytes that the executions are given.

/// Causal attention of whole sequences of one length, elements of 16 bits.
struct AttentionExtents {
  std::int64_t sequences = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool ordered = true;  // the backward pass adds up in one order: repeated calls have the same bits
  friend bool operator==(const AttentionExtents&, const AttentionExtents&) = default;
};

/// The work of one execution: whole sequences, or some heads of the keys of one sequence with the
/// query heads that share them.
struct AttentionPart {
  std::int64_t sequences = 0, kv_heads = 0;
  friend bool operator==(const AttentionPart&, const AttentionPart&) = default;
};

struct AttentionParts {
  AttentionPart forward, backward;
  std::int64_t bytes = 0;  // of temporary memory
  friend bool operator==(const AttentionParts&, const AttentionParts&) = default;
};

/// A part of the backward pass takes no more than the first if it can be so small, and never more
/// than the second. Eight heads of 8,192 tokens, which keep a Hopper busy for three quarters of the
/// time, need a little more than 1 GiB.
inline constexpr std::int64_t wished_attention_bytes = std::int64_t{1280} << 20;
inline constexpr std::int64_t max_attention_bytes = std::int64_t{2} << 30;

inline constexpr std::int64_t attention_block = 256;  // bytes; each of what follows is whole ones

constexpr std::int64_t in_attention_blocks(std::int64_t bytes) {
  return (bytes + attention_block - 1) / attention_block * attention_block;
}

/// A sum in fp32 for each query of a part; then, where the order of sums is free, the sums of its
/// gradient.
constexpr std::int64_t attention_mean_bytes(const AttentionExtents& part) {
  return in_attention_blocks(part.sequences * part.heads * part.length * 4);
}
constexpr std::int64_t attention_sum_bytes(const AttentionExtents& part) {
  if (part.ordered) return 0;
  return in_attention_blocks(part.sequences * part.heads * part.length * part.head_dim * 4);
}

/// Memory that the backward pass needs in addition: gradients of scores, which have to be in memory
/// for sums in one order; key gradients of every query head where heads share keys; and a block of
/// the library's own.
constexpr std::int64_t attention_part_bytes(const AttentionExtents& part) {
  const std::int64_t queries = part.sequences * part.heads * part.length;
  const std::int64_t scores = part.ordered ? queries * part.length * 2 : 0;
  const std::int64_t shared = part.heads > part.kv_heads ? 2 * queries * part.head_dim * 2 : 0;
  return in_attention_blocks(scores) + in_attention_blocks(shared) + attention_mean_bytes(part) +
         attention_sum_bytes(part) + attention_block;
}

/// The extents of a part.
constexpr AttentionExtents extents_of(const AttentionExtents& all, const AttentionPart& part) {
  const std::int64_t group = all.heads / all.kv_heads;
  return {part.sequences, all.length,   part.kv_heads * group,
          part.kv_heads,  all.head_dim, all.ordered};
}

/// A call of attention knows its parts by the bytes that it is given: an even number of blocks
/// where sums are ordered, an odd one where they are not.
constexpr bool is_ordered(std::int64_t bytes) { return bytes / attention_block % 2 == 0; }

/// The largest part of the backward pass that is as small as wished; all parts are alike. The
/// forward pass keeps nothing in memory, and is one execution.
constexpr AttentionParts attention_parts(const AttentionExtents& all,
                                         std::int64_t wished = wished_attention_bytes) {
  const auto bytes = [&](const AttentionPart& part) {
    return attention_part_bytes(extents_of(all, part));
  };
  const auto fits = [&](std::int64_t whole, std::int64_t parts, const AttentionPart& part) {
    return whole % parts == 0 && bytes(part) <= wished;
  };
  AttentionPart part{1, all.kv_heads};
  while (part.kv_heads > 1 && !fits(all.kv_heads, part.kv_heads, part)) --part.kv_heads;
  if (part.kv_heads == all.kv_heads) part.sequences = all.sequences;
  while (part.sequences > 1 && !fits(all.sequences, part.sequences, part)) --part.sequences;
  const std::int64_t more = is_ordered(bytes(part)) == all.ordered ? 0 : attention_block;
  return {{all.sequences, all.kv_heads}, part, bytes(part) + more};
}

}  // namespace trainctl
