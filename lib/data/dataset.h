// The tokens of each sample: splits, orders and blends of token files, and the position of a run in
// them.
#pragma once

#include <bit>
#include <cassert>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace trainctl {

/// The position in one source. An epoch in progress keeps the windows and the order with which it
/// began. If the row length has changed since, its unread labels, in that order, are joined and cut
/// at the new length; rows of documents are cut but not joined.
struct SourcePosition {
  std::int64_t order = 0;  // number of its random order; no two sources share one
  std::int64_t epoch = 0;  // number of the epoch in progress, from 0
  // The sequence length and shuffling with which the epoch was begun.
  std::int64_t seq_length = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::int64_t windows = 0;  // windows of the epoch that were read
  std::int64_t labels = 0;   // labels of the next window that were read
  friend bool operator==(const SourcePosition&, const SourcePosition&) = default;
};

/// The position of a run in its training data. A checkpoint keeps it, so that another session reads
/// the next samples, whatever its batch, its sequence length, its blend or its seed.
struct DataPosition {
  std::int64_t sample = 0;   // number of the next sample
  std::int64_t pattern = 0;  // samples since the pattern of the blend began
  std::vector<SourcePosition> sources;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

// The tokens of one file that belong to a split, as one stream, and its validation windows: pure
// arithmetic on the file's length.

enum class Split { train, validation };

struct SplitRule {
  double fraction = 0;  // part of each file that goes to validation, in [0, 1]
  /// Validation gets every round(1/fraction)th block of 1024 tokens if true, else the last part.
  bool blocks = false;
  /// Documents are not joined, and the split is by whole documents.
  bool documents = false;
};

/// The stream consists of runs that lie `period` tokens apart in the file: a single run for a split
/// into two parts; for a split by blocks, a run per 1024-token block or per stretch of blocks.
class SplitStream {
 public:
  SplitStream(std::int64_t file_tokens, SplitRule rule, Split split);

  std::int64_t tokens() const { return tokens_; }

  struct Place {
    std::int64_t token;   // its number in the file
    std::int64_t follow;  // number of tokens of the stream that lie there back to back
  };
  /// The place of the token at `position` of [0, tokens()).
  Place locate(std::int64_t position) const;

  struct Window {
    std::int64_t first;   // position of its first input
    std::int64_t scored;  // labels that count, from the first
  };
  /// Windows of seq_length inputs that share no label. If a block holds one, windows stay inside
  /// blocks, and the last is scored in part: each token of a block but its first is a label once.
  /// Otherwise windows follow each other in the stream, without an incomplete last one.
  std::int64_t windows(std::int64_t seq_length) const;
  Window window(std::int64_t index, std::int64_t seq_length) const;

 private:
  bool stays_in_runs(std::int64_t seq_length) const;

  std::int64_t tokens_ = 0;
  std::int64_t offset_ = 0;  // start of the first run in the file
  std::int64_t run_ = 1;
  std::int64_t period_ = 1;
  bool is_blocks_ = false;  // runs are blocks for validation
};

// A pseudo-random order of [0, count) that is computed, not stored: a keyed Feistel network over
// the next even power of two, walked until it lands inside.

/// The new place of `index`: a bijection of [0, count) for every `key`. Takes fewer than four
/// passes on average.
constexpr std::uint64_t permuted(std::uint64_t index, std::uint64_t count, std::uint64_t key) {
  assert(index < count);
  if (count == 1) return 0;
  const int half = (std::bit_width(count - 1) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  do {
    std::uint64_t left = index >> half;
    std::uint64_t right = index & mask;
    for (std::uint64_t round = 1; round <= 6; ++round) {
      // The finaliser of splitmix64 (Steele, Lea, Flood 2014) as the round function.
      std::uint64_t mixed = (right ^ key) + round * 0x9e3779b97f4a7c15ULL;
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
      mixed ^= mixed >> 31;
      const std::uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    index = (left << half) | right;
  } while (index >= count);
  return index;
}

// The source of the n-th sample, and its number in that source: a fixed pattern, repeated, so that
// both are look-ups for any n.

class Blend {
 public:
  /// Weights >= 0, not all 0; only their ratios matter. They are taken as fractions of the shortest
  /// period up to 65,536 samples that holds them exactly, else rounded to 1/65,536 (but a source of
  /// positive weight has at least one sample per period).
  /// After any number n of samples, each source has had within one of n times its fraction.
  explicit Blend(const std::vector<double>& weights);

  struct Pick {
    std::size_t source;
    std::int64_t sample;  // number in that source, from 0
  };
  Pick pick(std::int64_t index) const;
  /// Samples of each source among the first `samples`.
  std::vector<std::int64_t> counts(std::int64_t samples) const;
  std::int64_t period() const { return static_cast<std::int64_t>(pattern_.size()); }
  /// Samples of `source` per period.
  std::int64_t share(std::size_t source) const { return share_[source]; }

 private:
  void lay_pattern(std::int64_t period);

  std::vector<std::int64_t> share_;
  std::vector<Pick> pattern_;  // the first period
};

// The tokens of a sample: weighted blend of files, train/validation split, shuffling, all pure
// functions of (seed, global sample index). A sample is seq_length + 1 consecutive tokens of a
// split's stream: the tokens of one file that belong to the split, joined. If documents are not
// joined, it is a row of one document, followed by tokens that do not count.

struct SourceFile {
  TokenFile file;
  double weight = 1;
};

/// Reading samples is thread-safe.
class Dataset {
 public:
  /// Throws Error{bad_data}, with the numbers, when a source of positive weight has fewer than
  /// seq_length + 1 tokens in this split, or no row of a document. Throws Error{config} for a
  /// weight that is negative or not a number.
  Dataset(std::vector<SourceFile> sources, SplitRule rule, Split split, std::int64_t seq_length,
          std::uint64_t seed, bool shuffle);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  std::int64_t seq_length() const;
  std::int64_t tokens() const;  // tokens of this split in all sources
  /// The number of windows of this split, which share no label, over all sources; validation reads
  /// each once. N tokens in one piece have (N - 1) / seq_length; with blocks, each block that holds
  /// a window is cut separately, its last window scored in part. Each row of documents is a window.
  std::int64_t windows() const;

  struct Sample {
    std::vector<std::int32_t> tokens;  // seq_length inputs, and the last label
    // seq_length labels: the token after each input in the file. In a row that is joined from
    // windows that do not touch, a label is not always the next input.
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> document;  // seq_length: number of each input's document, from 0
    std::int64_t scored = 0;  // labels that count, from the first; tokens after them are 0
  };
  /// A sample of training: `index` is at least the first sample of this session, which is 0 for a
  /// new run. A source's epoch is each of its windows once, in an order and from a starting token
  /// of its own (unless not shuffled); its last window ends with the stream. An epoch of documents
  /// is each row once. Sources take turns so that after any n samples each has had within one of
  /// its share.
  void train_sample(std::int64_t index, Sample& out) const;
  /// Resumes training at `position`: train_sample(position.sample) is the next sample. `position`
  /// has an entry for each source, and each source has at least the windows that were read.
  void go_on(const DataPosition& position);
  /// The position of training after the samples before `sample` were read. `sample` is not before
  /// the one where training was resumed.
  DataPosition position(std::int64_t sample) const;
  /// The number of windows, in epochs of this seq_length, before the sample of the resumption.
  std::int64_t windows_behind() const;
  /// Labels of source `index`'s epoch in progress that are in no sample after training was resumed
  /// with another seq_length, since they do not fill a row.
  std::int64_t rest(std::size_t index) const;
  /// Window `index` of [0, windows()), in order of sources and places.
  void window(std::int64_t index, Sample& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
