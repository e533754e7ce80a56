// Which tokens a sample is: weighted blend of files, train/validation split, shuffling, all pure
// functions of (seed, global sample index). A sample is seq_length + 1 consecutive tokens of a
// split's stream: the tokens of one file that belong to the split, joined. Where documents are not
// joined it is a row of one document, after which come tokens that do not count.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/data_position.h"
#include "data/split_stream.h"
#include "data/token_file.h"

namespace trainctl {

struct SourceFile {
  TokenFile file;
  double weight = 1;
};

/// Reading samples is thread-safe.
class Dataset {
 public:
  /// Throws Error{bad_data} when a source of positive weight has fewer than seq_length + 1 tokens
  /// in this split, or no row of a document, with the numbers, and Error{config} for a weight that
  /// is negative or no number.
  Dataset(std::vector<SourceFile> sources, SplitRule rule, Split split, std::int64_t seq_length,
          std::uint64_t seed, bool shuffle);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  std::int64_t seq_length() const;
  std::int64_t tokens() const;  // of this split, all sources
  /// Windows of this split that share no label, all sources: what validation walks. Of N tokens in
  /// one piece, (N - 1) / seq_length; with blocks, each block is cut into windows of its own (where
  /// it holds one), the last of them scored in part. Of documents, each row.
  std::int64_t windows() const;

  struct Sample {
    std::vector<std::int32_t> tokens;  // seq_length inputs, and the last label
    // seq_length: the token after each input in the file. In a row that is joined from windows that
    // do not touch, it is not always the next input.
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> document;  // seq_length: number of each input's document, from 0
    std::int64_t scored = 0;  // labels that count, from the first; tokens after them are 0
  };
  /// Training: any index from where the run goes on, at first 0. A source's epoch is each of its
  /// windows once, in an order and from a starting token of its own (unless not shuffled); its last
  /// window ends with the stream. An epoch of documents is each row once. Sources take turns so
  /// that after any n samples each has had within one of its share.
  void train_sample(std::int64_t index, Sample& out) const;
  /// Training goes on there: train_sample(position.sample) is the next one. As many sources as
  /// there are, which have at least the windows that were read.
  void go_on(const DataPosition& position);
  /// Where training is when the samples before `sample` were read; not before where it went on.
  DataPosition position(std::int64_t sample) const;
  /// Of the sources' epochs of this seq_length, windows that were behind where training went on.
  std::int64_t windows_behind() const;
  /// Labels of the epoch in progress of source `index` that no sample has, where training went on
  /// with another seq_length: they are fewer than a row's.
  std::int64_t rest(std::size_t index) const;
  /// Window `index` of [0, windows()), in order of sources and places.
  void window(std::int64_t index, Sample& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
