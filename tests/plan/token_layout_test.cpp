// How evenly context-parallel ranks share the work of causal attention: pairs of a query and a key
// that it sees, counted.
#include "plan/tables/layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "catch.h"

using namespace trainctl;

namespace {

/// Pairs of `rank`'s queries with the keys of `source`.
std::int64_t pairs(const TokenPieces& tokens, std::int64_t rank, std::int64_t source) {
  std::int64_t seen = 0;
  for (std::int64_t q = 0; q < tokens.pieces(); ++q) {
    for (std::int64_t i = 0; i < tokens.piece_length(); ++i) {
      const std::int64_t query = tokens.position(rank, q) + i;
      for (std::int64_t k = 0; k < tokens.pieces(); ++k) {
        const std::int64_t first = tokens.position(source, k);
        seen += std::clamp<std::int64_t>(query - first + 1, 0, tokens.piece_length());
      }
    }
  }
  return seen;
}

/// How much more than the mean the busiest rank has to do.
double imbalance(const std::vector<std::int64_t>& work) {
  const auto sum = static_cast<double>(std::accumulate(work.begin(), work.end(), std::int64_t{0}));
  const auto most = static_cast<double>(*std::max_element(work.begin(), work.end()));
  return most * static_cast<double>(work.size()) / sum - 1;
}

/// All ranks' work, with the keys that come to each in step `step` of a ring, or all of them.
std::vector<std::int64_t> work_in(const TokenPieces& tokens, std::int64_t step) {
  std::vector<std::int64_t> work;
  for (std::int64_t rank = 0; rank < tokens.ranks; ++rank) {
    work.push_back(pairs(tokens, rank, (rank - step + tokens.ranks) % tokens.ranks));
  }
  return work;
}

std::vector<std::int64_t> work_of(const TokenPieces& tokens) {
  std::vector<std::int64_t> work(static_cast<std::size_t>(tokens.ranks));
  for (std::int64_t step = 0; step < tokens.ranks; ++step) {
    const std::vector<std::int64_t> more = work_in(tokens, step);
    for (std::size_t rank = 0; rank < work.size(); ++rank) work[rank] += more[rank];
  }
  return work;
}

}  // namespace

TEST_CASE("chunks in pairs leave every rank as much of causal attention, in each step of a ring") {
  constexpr double most = 0.02;
  for (const std::int64_t ranks : {2, 4, 8, 16}) {
    INFO(ranks << " ranks");
    const std::int64_t length = 64 * ranks;
    const TokenPieces paired = token_layout(ranks, length);
    CHECK(paired.zigzag);
    const std::vector<std::int64_t> work = work_of(paired);
    CHECK(std::accumulate(work.begin(), work.end(), std::int64_t{0}) == length * (length + 1) / 2);
    CHECK(imbalance(work) <= most);
    for (std::int64_t step = 0; step < ranks; ++step) {
      CHECK(imbalance(work_in(paired, step)) <= most);
    }
    const TokenPieces in_order{.seq_length = length, .ranks = ranks};
    CHECK(imbalance(work_of(in_order)) > 0.4);
  }
}
