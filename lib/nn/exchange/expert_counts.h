// How many rows each rank sends to each expert, and where they lie on their way in chunks: of the n
// rows that a rank sends to an expert chunk c has those from n c / chunks to n (c + 1) / chunks.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trainctl {

/// The experts of rank r of `ranks` are those from r x held() on. Each is cut into `parts`, on
/// ranks that each get other tokens and gather those of all. Senders are numbered rank after rank
/// of part after part.
struct ExpertCounts {
  const std::int64_t* counts = nullptr;  // [parts x ranks, experts]
  std::int64_t ranks = 1;
  std::int64_t parts = 1;
  std::int64_t experts = 0;
  std::int64_t chunks = 1;
  std::int64_t rank = 0, part = 0;  // of this one

  std::int64_t held() const { return experts / ranks; }
  std::int64_t senders() const { return parts * ranks; }
  std::int64_t sender(std::int64_t of_part, std::int64_t of_rank) const {
    return of_part * ranks + of_rank;
  }
  std::int64_t own() const { return sender(part, rank); }
  std::int64_t of(std::int64_t from, std::int64_t expert) const {
    return counts[from * experts + expert];
  }
  /// Of them, those in the chunks before `chunk`, and those in it.
  std::int64_t before(std::int64_t from, std::int64_t expert, std::int64_t chunk) const {
    return of(from, expert) * chunk / chunks;
  }
  std::int64_t in(std::int64_t from, std::int64_t expert, std::int64_t chunk) const {
    return before(from, expert, chunk + 1) - before(from, expert, chunk);
  }

  /// Rows from all senders to one of the experts held here, in the chunks before `chunk`.
  std::int64_t come_before(std::int64_t held_expert, std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t from = 0; from < senders(); ++from) {
      rows += before(from, rank * held() + held_expert, chunk);
    }
    return rows;
  }
  /// Rows of a chunk from a sender to the experts of a rank.
  std::int64_t between(std::int64_t from, std::int64_t to_rank, std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t e = 0; e < held(); ++e) rows += in(from, to_rank * held() + e, chunk);
    return rows;
  }
  /// Rows of a chunk that come to a part of the experts held here, before the parts gather them.
  std::int64_t come_to(std::int64_t to_part, std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t r = 0; r < ranks; ++r) rows += between(sender(to_part, r), rank, chunk);
    return rows;
  }
  /// The most of them for any part: each has so much room in what is gathered.
  std::int64_t room(std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t p = 0; p < parts; ++p) rows = std::max(rows, come_to(p, chunk));
    return rows;
  }
  /// This sender's rows, and the room of all parts, in the chunks before `chunk`.
  std::int64_t sent_before(std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t e = 0; e < experts; ++e) rows += before(own(), e, chunk);
    return rows;
  }
  std::int64_t room_before(std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t c = 0; c < chunk; ++c) rows += parts * room(c);
    return rows;
  }
};

}  // namespace trainctl
