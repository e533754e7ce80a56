// Which tokens a sample is: weighted blend of files, train/validation split, shuffling, all pure
// functions of (seed, global sample index). A sample is seq_length + 1 consecutive tokens of a
// split's stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace trainctl {

enum class Split { train, validation };

struct SplitRule {
  double fraction = 0;  // of each file that goes to validation
  bool blocks = false;  // false: the last part; true: every (1/fraction)th block of 1024 tokens
};

struct SourceFile {
  TokenFile file;
  double weight = 1;
};

class Dataset {
 public:
  /// Throws Error{bad_data} when a split has fewer than seq_length + 1 tokens, with the numbers.
  Dataset(std::vector<SourceFile> sources, SplitRule rule, Split split, std::int64_t seq_length,
          std::uint64_t seed, bool shuffle);
  ~Dataset();
  Dataset(Dataset&&) noexcept;
  Dataset& operator=(Dataset&&) noexcept;

  std::int64_t seq_length() const;
  std::int64_t tokens() const;  // of this split, all sources
  /// Non-overlapping windows of this split: one epoch of a single source; what validation walks.
  std::int64_t windows() const;

  struct Sample {
    std::vector<std::int32_t> tokens;  // seq_length + 1
    std::vector<std::int32_t>
        document;  // seq_length: running number of the document within the sample
  };
  /// Training: any index >= 0; epochs are shuffled apart, with a phase per epoch so that windows
  /// differ; sources are chosen so that after n samples each has had within one of its weight's
  /// share (Megatron's blending rule).
  void train_sample(std::int64_t index, Sample& out) const;
  /// Window `index` of [0, windows()), in file order.
  void window(std::int64_t index, Sample& out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
