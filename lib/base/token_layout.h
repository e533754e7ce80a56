// How tokens are divided among the ranks of a context-parallel group, and among experts.
#pragma once

#include <cstdint>

namespace trainctl {

/// The pieces of a sequence on each rank: one, or with zigzag two, chunks r and 2 ranks - 1 - r of
/// 2 ranks equal chunks, so that all ranks have the same work under the causal mask (Megatron-Core:
/// get_batch_on_this_cp_rank). All pieces have the same length.
struct TokenPieces {
  std::int64_t seq_length = 0;
  std::int64_t ranks = 1;
  bool zigzag = false;

  constexpr std::int64_t pieces() const { return zigzag ? 2 : 1; }
  constexpr std::int64_t piece_length() const { return rank_length() / pieces(); }
  /// Tokens of a sequence on one rank, in the order of its pieces.
  constexpr std::int64_t rank_length() const { return seq_length / ranks; }
  /// The position in the sequence of the first token of a rank's piece.
  constexpr std::int64_t position(std::int64_t rank, std::int64_t piece) const {
    return (piece == 0 ? rank : 2 * ranks - 1 - rank) * piece_length();
  }

  /// The number of the piece on its rank that contains this position of the sequence.
  constexpr std::int64_t piece_with(std::int64_t position) const {
    return position / piece_length() < ranks ? 0 : 1;
  }
  /// The rank whose pieces contain this position.
  constexpr std::int64_t rank_with(std::int64_t position) const {
    const std::int64_t chunk = position / piece_length();
    return chunk < ranks ? chunk : 2 * ranks - 1 - chunk;
  }
};

/// The size of a token group if sequences have `length` instead of `longest` tokens: a group of
/// whole sequences shrinks with them, a part of a sequence keeps its size. 0 stays 0.
constexpr std::int64_t group_at_length(std::int64_t group, std::int64_t longest,
                                       std::int64_t length) {
  return longest > 0 && group % longest == 0 ? group / longest * length : group;
}

// The capacity of an expert.

/// The capacity: ceil(topk x tokens x factor / experts), at most topk x tokens; `factor` > 0.
constexpr std::int64_t expert_places(double factor, std::int64_t topk, std::int64_t experts,
                                     std::int64_t tokens) {
  const auto choices = static_cast<double>(topk) * static_cast<double>(tokens);
  const double places = choices * factor / static_cast<double>(experts);
  if (places >= choices) return topk * tokens;
  const auto whole = static_cast<std::int64_t>(places);
  return whole + (static_cast<double>(whole) < places ? 1 : 0);
}

}  // namespace trainctl
