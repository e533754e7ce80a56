// Where the rows of a router lie: those of gathered ranks, and those on their way to experts.
#pragma once

#include <cstdint>

#include "base/token_layout.h"

namespace trainctl {

/// Which token a row is. Rows that context-parallel ranks have gathered lie rank after rank, and
/// each rank's sequence after sequence. By default rows lie in the order of the data.
struct RowOrder {
  TokenLayout tokens{};        // seq_length is needed with several ranks
  std::int64_t sequences = 1;  // of each rank

  constexpr std::int64_t token_of(std::int64_t row) const {
    if (tokens.ranks == 1) return row;
    const std::int64_t part = tokens.rank_length();
    const std::int64_t piece = tokens.piece_length();
    const std::int64_t first = tokens.position(row / (sequences * part), row % part / piece);
    return row / part % sequences * tokens.seq_length + first + row % piece;
  }
  constexpr std::int64_t row_of(std::int64_t token) const {
    if (tokens.ranks == 1) return token;
    const std::int64_t piece = tokens.piece_length();
    const TokenLayout::Piece held = tokens.piece_with(token % tokens.seq_length);
    const std::int64_t sequence = held.rank * sequences + token / tokens.seq_length;
    return sequence * tokens.rank_length() + held.number * piece + token % piece;
  }
};

/// Which tokens routers count, by their number in the order of the data: all but padding.
struct RealTokens {
  const std::uint8_t* marks = nullptr;  // null: all

  constexpr bool has(std::int64_t token) const { return marks == nullptr || marks[token] != 0; }
};

/// In which order the rows of the experts lie on their way: of an expert's n rows chunk c has those
/// from n c / chunks to n (c + 1) / chunks; chunk after chunk, in each expert after expert.
struct RowChunking {
  const std::int64_t* counts = nullptr;  // rows of each expert
  std::int64_t experts = 0;
  std::int64_t chunks = 1;

  /// Where row `row` of `expert` lies.
  constexpr std::int64_t slot_of(std::int64_t expert, std::int64_t row) const {
    const std::int64_t chunk = ((row + 1) * chunks - 1) / counts[expert];
    const std::int64_t end = chunks > 1 ? experts : expert;
    std::int64_t slot = row;
    for (std::int64_t e = 0; e < end; ++e) {
      if (e != expert) slot += counts[e] * (chunk + (e < expert ? 1 : 0)) / chunks;
    }
    return slot;
  }
};

}  // namespace trainctl
