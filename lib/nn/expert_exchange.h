// The exchange of rows between the ranks of a layer of experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "nn/layer.h"
#include "nn/mlp.h"
#include "nn/reshard.h"
#include "plan/schedule/action.h"

namespace trainctl {

// The number of rows that each rank sends to each expert, and their ranges in chunks: of the n rows
// that a rank sends to an expert, chunk c has rows n c / chunks to n (c + 1) / chunks.

/// Rank r of `ranks` holds the experts from r x held() on. Each expert is cut into `parts`, held by
/// ranks that get different tokens and gather the tokens of all parts. A sender is numbered part x
/// ranks + rank.
struct ExpertCounts {
  const std::int64_t* counts = nullptr;  // [parts x ranks, experts]
  std::int64_t ranks = 1;
  std::int64_t parts = 1;
  std::int64_t experts = 0;
  std::int64_t chunks = 1;
  std::int64_t rank = 0, part = 0;  // indices of this process

  std::int64_t held() const { return experts / ranks; }
  std::int64_t senders() const { return parts * ranks; }
  std::int64_t sender(std::int64_t of_part, std::int64_t of_rank) const {
    return of_part * ranks + of_rank;
  }
  std::int64_t own() const { return sender(part, rank); }
  std::int64_t of(std::int64_t from, std::int64_t expert) const {
    return counts[from * experts + expert];
  }
  /// Rows from a sender to an expert in the chunks before `chunk`; in(): in `chunk` itself.
  std::int64_t before(std::int64_t from, std::int64_t expert, std::int64_t chunk) const {
    return of(from, expert) * chunk / chunks;
  }
  std::int64_t in(std::int64_t from, std::int64_t expert, std::int64_t chunk) const {
    return before(from, expert, chunk + 1) - before(from, expert, chunk);
  }

  /// Rows from all senders to one expert held here, in the chunks before `chunk`.
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
  /// Rows of a chunk that arrive at one part of the experts held here, before the parts gather
  /// them.
  std::int64_t come_to(std::int64_t to_part, std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t r = 0; r < ranks; ++r) rows += between(sender(to_part, r), rank, chunk);
    return rows;
  }
  /// The largest come_to() of any part. Each part gets this many rows in the gathered buffer.
  std::int64_t room(std::int64_t chunk) const {
    std::int64_t rows = 0;
    for (std::int64_t p = 0; p < parts; ++p) rows = std::max(rows, come_to(p, chunk));
    return rows;
  }
  /// Rows that this sender sends in the chunks before `chunk`; room_before(): rows that all parts
  /// have room for in these chunks, with padding.
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

// Sends rows to the ranks of their experts and back, in chunks: while the experts work on one
// chunk, other chunks are in transit. On its expert's rank, a row is stored with the rows of the
// same expert, ordered by chunk, then by sending rank, then by token. Ranks that hold parts of the
// same experts gather the rows that arrive at each rank, and sum their results.

/// An exchanged tensor: `rows` on the ranks of the experts; `of_choices` on the tokens' ranks, with
/// one row per choice, or per token (k times fewer). Rows of one fp32 element are weights.
struct ExchangedTensor {
  Tensor of_choices, rows;
};

/// The exchange of one pass through a layer whose router has chosen experts. In a group of one
/// rank, rows are copied from tokens to experts directly, in one chunk. One exchange of forward
/// passes (F) may be in flight, and one of backward passes (R and B).
class ExpertExchange {
 public:
  ExpertExchange(const Pass& pass, const ExpertGroups& groups, const RoutedRows& routed,
                 bool backward);

  /// All chunks, as a range of chunk numbers.
  Range all() const { return {0, counts_.chunks}; }
  /// The range of this rank's tokens whose rows it sends.
  Range sent() const;
  /// This rank's row of routed.sent_counts. share_counts() gathers the rows of the other ranks and
  /// waits until routed.counts has every row, because all later sizes depend on these counts.
  Tensor local_counts() const {
    return routed_.sent_counts.slice(counts_.own(), counts_.own() + 1);
  }
  void share_counts() const;
  /// Calls body(expert, rows) for each of the experts held here that has rows in these chunks, in
  /// order.
  template <class Body>
  void for_each(const Range& chunks, const Body& body) const {
    std::int64_t first = 0;  // the expert's first row
    for (std::int64_t expert = 0; expert < counts_.held(); ++expert) {
      const std::int64_t begin = first + counts_.come_before(expert, chunks.begin);
      const std::int64_t end = first + counts_.come_before(expert, chunks.end);
      if (begin < end) body(expert, Range{begin, end});
      first += counts_.come_before(expert, counts_.chunks);
    }
  }
  /// Calls body(Range) for the rows of for_each(), with adjacent rows joined into one range.
  template <class Body>
  void for_ranges(const Range& chunks, const Body& body) const {
    Range range;
    for_each(chunks, [&](std::int64_t, const Range& rows) {
      if (range.end != rows.begin) {
        if (range.count() > 0) body(range);
        range.begin = rows.begin;
      }
      range.end = rows.end;
    });
    if (range.count() > 0) body(range);
  }

  /// Sends the rows of `there` to the experts, calls work(chunk) for each arrived chunk, and sends
  /// the results as `back`, summed over choices if it has one row per token. meanwhile() may run
  /// work without experts' rows. With a leg of a pass, runs only that part.
  template <class Meanwhile, class Work>
  void run(ExchangePhase leg, std::span<const ExchangedTensor> there,
           std::span<const ExchangedTensor> back, const Meanwhile& meanwhile,
           const Work& work) const {
    if (runs(leg, ExchangePhase::out)) {
      send(there);
      meanwhile();
    }
    for (std::int64_t chunk = 0; runs(leg, ExchangePhase::work) && chunk < counts_.chunks;
         ++chunk) {
      take(there, chunk);
      work(Range{chunk, chunk + 1});
      give(back, chunk);
    }
    if (runs(leg, ExchangePhase::home)) finish(back);
  }

 private:
  struct ExchangeRun;

  bool alone() const { return counts_.senders() == 1; }
  Stream& wire() const { return groups_.beside != nullptr ? *groups_.beside : *pass_.ops->stream; }
  /// The gather and the sum over the ranks that hold parts of the same experts.
  Reshard parts() const;
  /// This rank's share of x, a tensor with the rows of all tokens or of all choices.
  Tensor share_of(const Tensor& x) const;
  Tensor slots_of(const Tensor& share) const;
  /// Computes the destination of each row that arrives here from the counts.
  void find_places() const;
  /// Sends all chunks of the tokens' rows, one after the other, on wire().
  void send(std::span<const ExchangedTensor> ways) const;
  /// Copies the arrived rows of a chunk to their places in `rows`.
  void take(std::span<const ExchangedTensor> ways, std::int64_t chunk) const;
  /// Sends the results of a chunk back to the ranks of their tokens.
  void give(std::span<const ExchangedTensor> ways, std::int64_t chunk) const;
  /// Waits for all results and adds up the choices of each token.
  void finish(std::span<const ExchangedTensor> ways) const;
  ExchangeRun through(const ExchangedTensor& way, std::int64_t chunk) const;

  const Pass& pass_;
  const ExpertGroups& groups_;
  const RoutedRows& routed_;
  const bool backward_;
  ExpertCounts counts_;
};

}  // namespace trainctl
