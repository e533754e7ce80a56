// Whether samples come in an order that a run may read them in, found without the functions that
// draw them: by looking each up in the tokens of its file.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/batch.h"

namespace trainctl {

/// A token file as it was written.
struct FileTokens {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> documents;  // first token of each; empty: documents are joined
};

/// One rule of the order: how many samples break it, and the step of the first that does.
struct OrderCount {
  std::string what;
  std::int64_t samples = 0;
  std::int64_t step = 0;
};

class DataOrder {
 public:
  DataOrder(const FileTokens& file, std::int64_t seq_length, bool shuffle);
  /// The next samples of the run; `step` is 1 for the first.
  void add(std::int64_t step, const Batch& batch);
  /// Every sample is in the file, none comes twice in an epoch, and a shuffled epoch is not that
  /// before it once more, as one that is not shuffled must be.
  std::vector<OrderCount> broken() const;

 private:
  struct Row;
  std::int64_t place_of(const Row& row) const;
  bool matches(const Row& row, std::int64_t place) const;
  std::uint64_t key_of(const std::int32_t* tokens, std::int64_t count) const;

  const FileTokens& file_;
  std::int64_t windows_;  // of an epoch
  bool shuffle_;
  std::unordered_multimap<std::uint64_t, std::int64_t> places_;  // of what a sample begins with
  std::vector<std::int64_t> before_, epoch_;  // places of the last epoch and of this one
  OrderCount missing_{"samples that the file does not have"};
  OrderCount twice_{"samples that an epoch has twice"};
  OrderCount alike_{"samples in the order of the epoch before"};
  OrderCount other_{"samples in another order than that of the file"};
  std::int64_t repeated_ = 0;  // samples after the first epoch
};

}  // namespace trainctl
