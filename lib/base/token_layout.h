// How tokens are divided: over the ranks of a context-parallel group, and over experts.
#pragma once

#include <cstdint>

namespace trainctl {

/// Each rank has one piece of every sequence, or two: chunks number r and 2 ranks - 1 - r of
/// 2 ranks equal ones, so that under the causal mask all ranks have as much to do (Megatron-Core:
/// get_batch_on_this_cp_rank). All pieces have the same length.
struct TokenPieces {
  std::int64_t seq_length = 0;
  std::int64_t ranks = 1;
  bool zigzag = false;

  constexpr std::int64_t pieces() const { return zigzag ? 2 : 1; }
  constexpr std::int64_t piece_length() const { return rank_length() / pieces(); }
  /// Tokens of a sequence on one rank; they lie in the order of its pieces.
  constexpr std::int64_t rank_length() const { return seq_length / ranks; }
  /// Position in the sequence of the first token of a rank's piece.
  constexpr std::int64_t position(std::int64_t rank, std::int64_t piece) const {
    return (piece == 0 ? rank : 2 * ranks - 1 - rank) * piece_length();
  }

  struct Piece {
    std::int64_t rank = 0, number = 0;
  };
  /// The piece that has this position.
  constexpr Piece piece_with(std::int64_t position) const {
    const std::int64_t chunk = position / piece_length();
    if (chunk < ranks) return {chunk, 0};
    return {2 * ranks - 1 - chunk, 1};
  }
};

/// A group of neighbouring tokens of sequences that are `longest` long, where they are `length`
/// long: one of whole sequences has fewer tokens, a part of one as many. 0 stays 0.
constexpr std::int64_t group_at_length(std::int64_t group, std::int64_t longest,
                                       std::int64_t length) {
  return longest > 0 && group % longest == 0 ? group / longest * length : group;
}

// How many choices of a group of tokens an expert takes.

/// ceil(topk x tokens x factor / experts), but no more than there are choices. `factor` is above 0.
constexpr std::int64_t expert_places(double factor, std::int64_t topk, std::int64_t experts,
                                     std::int64_t tokens) {
  const auto choices = static_cast<double>(topk) * static_cast<double>(tokens);
  const double places = choices * factor / static_cast<double>(experts);
  if (places >= choices) return topk * tokens;
  const auto whole = static_cast<std::int64_t>(places);
  return whole + (static_cast<double>(whole) < places ? 1 : 0);
}

}  // namespace trainctl
