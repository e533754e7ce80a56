// How many rows each rank sends to each expert, and where they lie on their way in chunks: of the n
// rows that a rank sends to an expert chunk c has those from n c / chunks to n (c + 1) / chunks.
#pragma once

#include <cstdint>

namespace trainctl {

/// The experts of rank r are those from r x held() on.
struct ExpertCounts {
  const std::int64_t* counts = nullptr;  // [ranks, experts]
  std::int64_t ranks = 1;
  std::int64_t experts = 0;
  std::int64_t chunks = 1;
  std::int64_t rank = 0;  // this one

  std::int64_t held() const { return experts / ranks; }
  std::int64_t of(std::int64_t sender, std::int64_t expert) const {
    return counts[sender * experts + expert];
  }
  /// Of them, those in the chunks before `chunk`, and those in it.
  std::int64_t before(std::int64_t sender, std::int64_t expert, std::int64_t chunk) const {
    return of(sender, expert) * chunk / chunks;
  }
  std::int64_t in(std::int64_t sender, std::int64_t expert, std::int64_t chunk) const {
    return before(sender, expert, chunk + 1) - before(sender, expert, chunk);
  }

  /// Rows of one of the experts held here that come in the chunks before `chunk`.
  std::int64_t come_before(std::int64_t held_expert, std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t sender = 0; sender < ranks; ++sender) {
      rows += before(sender, rank * held() + held_expert, chunk);
    }
    return rows;
  }
  /// Rows of a chunk from one rank to another.
  std::int64_t between(std::int64_t sender, std::int64_t receiver, std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t e = 0; e < held(); ++e) rows += in(sender, receiver * held() + e, chunk);
    return rows;
  }
};

}  // namespace trainctl
