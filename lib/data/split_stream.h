// The tokens of one file that belong to a split, as one stream, and its validation windows: pure
// arithmetic on the file's length.
#pragma once

#include <cstdint>

namespace trainctl {

enum class Split { train, validation };

struct SplitRule {
  double fraction = 0;  // of each file that goes to validation, in [0, 1]
  /// false: the last part. true: every round(1/fraction)th block of 1024 tokens.
  bool blocks = false;
  /// Documents are not joined, and the split is of whole documents (document_rows.h).
  bool documents = false;
};

/// The stream is made of runs that lie `period` tokens apart in the file: one run for a split into
/// two parts, a run per 1024-token block, or per stretch of blocks, for a split by blocks.
class SplitStream {
 public:
  SplitStream(std::int64_t file_tokens, SplitRule rule, Split split);

  std::int64_t tokens() const { return tokens_; }

  struct Place {
    std::int64_t token;   // in the file
    std::int64_t follow;  // tokens of the stream that lie there back to back
  };
  /// `position` of [0, tokens()).
  Place locate(std::int64_t position) const;

  struct Window {
    std::int64_t first;   // position of its first input
    std::int64_t scored;  // labels that count, from the first
  };
  /// Windows of seq_length inputs that share no label. When a block holds a window they stay inside
  /// blocks, whose last window is scored in part: each token of a block but its first is a label
  /// once. Otherwise they follow each other in the stream and an incomplete last one is left out.
  std::int64_t windows(std::int64_t seq_length) const;
  Window window(std::int64_t index, std::int64_t seq_length) const;

 private:
  bool stays_in_runs(std::int64_t seq_length) const;

  std::int64_t tokens_ = 0;
  std::int64_t offset_ = 0;  // of the first run in the file
  std::int64_t run_ = 1;
  std::int64_t period_ = 1;
  bool is_blocks_ = false;  // of validation
};

}  // namespace trainctl
