// The rows of a split whose documents are not joined: each row has tokens of one document only.
#pragma once

#include <cstdint>
#include <vector>

#include "data/split_stream.h"
#include "data/token_file.h"

namespace trainctl {

/// A document of n tokens gives rows of seq_length labels, and one with the rest: each of its
/// tokens but the first is a label once. A split has whole documents: the last part of them, or of
/// every round(1/fraction) the last (SplitRule::blocks).
class DocumentRows {
 public:
  /// Throws Error{bad_data} if the file does not say where its documents begin.
  DocumentRows(const TokenFile& file, SplitRule rule, Split split, std::int64_t seq_length);

  std::int64_t tokens() const { return tokens_; }  // of the split's documents
  std::int64_t rows() const { return documents_.empty() ? 0 : documents_.back().end_row; }
  /// `index` of [0, rows()): its first token in the file, and its labels, of which all count.
  SplitStream::Window row(std::int64_t index) const;
  /// The same documents in rows of another length.
  DocumentRows cut_at(std::int64_t seq_length) const;

 private:
  struct Document {
    std::int64_t first;    // token in the file
    std::int64_t labels;   // its tokens but one
    std::int64_t end_row;  // number of the row after its last
  };
  std::vector<Document> documents_;  // those that have rows
  std::int64_t seq_length_;
  std::int64_t tokens_ = 0;
};

}  // namespace trainctl
