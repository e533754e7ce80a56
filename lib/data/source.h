// One file of a dataset: its windows, in the order in which training draws them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/data_position.h"
#include "data/document_rows.h"
#include "data/split_stream.h"
#include "data/token_file.h"

namespace trainctl {

/// How the epochs that begin in this session are drawn.
struct DrawRule {
  std::int64_t seq_length = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
};

class Source {
 public:
  using Window = SplitStream::Window;

  /// Begins with its first epoch. `order` as SourcePosition::order.
  Source(TokenFile file, SplitStream stream, std::optional<DocumentRows> rows, DrawRule rule,
         std::int64_t order);

  const TokenFile& file() const { return file_; }
  std::int64_t tokens() const { return rows_ ? rows_->tokens() : stream_.tokens(); }
  /// Of its split that share no label, and the window with a number (SplitStream, DocumentRows).
  std::int64_t windows() const { return windows_; }
  Window window(std::int64_t index) const;
  /// Where the tokens at a window's positions lie in the file, back to back.
  SplitStream::Place locate(std::int64_t position) const;

  /// Sample 0 is from now on the one at `position`.
  void go_on(const SourcePosition& position);
  SourcePosition position_after(std::int64_t samples) const;
  /// Windows of an epoch of this session that were behind when it began: epochs x windows() + some.
  std::int64_t windows_behind() const { return (at_.epoch + 1) * windows_ - left_; }
  /// Of the epoch in progress, labels that no sample has, since they are fewer than a row's.
  std::int64_t rest() const;
  /// The part of a training sample that begins with its label `done`: consecutive positions.
  /// Without labels after the last one.
  Window part(std::int64_t sample, std::int64_t done) const;

 private:
  /// A window of the epoch in progress when this session began, and its first label.
  struct Start {
    std::int64_t window;
    std::int64_t label;
  };
  bool cuts_rows() const { return rows_ && rule_.seq_length < at_.seq_length; }
  const DocumentRows& rows_of(std::int64_t seq_length) const;
  std::int64_t windows_of(std::int64_t seq_length) const;
  /// Window `place` in the order of an epoch.
  Window drawn(std::int64_t epoch, std::int64_t place, const DrawRule& rule) const;
  Window drawn_before(std::int64_t place) const;
  Start start_of(std::int64_t sample) const;

  TokenFile file_;
  SplitStream stream_;
  std::optional<DocumentRows> rows_;  // instead, where documents are not joined
  std::optional<DocumentRows>
      old_rows_;  // of the epoch in progress, if its rows have another length
  DrawRule rule_;
  std::int64_t windows_;
  SourcePosition at_;
  std::int64_t left_ = 0;
  // Where rows of documents are cut: samples up to the end of each window after at_.windows.
  std::vector<std::int64_t> ends_;
};

}  // namespace trainctl
