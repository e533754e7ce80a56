// The output of `trainctl verify`: rows as layouts finish, or one JSON document at the end.
// Progress goes to stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verify/selection/layout_selection.h"
#include "verify/switches/option_words.h"
#include "verify/verify.h"

namespace trainctl {

/// Rows and the summary, on standard output.
class VerifyOutput {
 public:
  struct Options {
    bool json = false;
    std::int64_t steps = 0;
    std::size_t widest = 0;  // letters of the longest layout
    bool pairs = false;      // a row is a pair of layouts, with a checkpoint half way
  };
  /// `selection` says what was skipped; it must outlive this.
  VerifyOutput(const Options& options, const LayoutSelection& selection);
  ~VerifyOutput();

  struct Row {
    std::string layout;
    std::int64_t ranks = 0;
    Settings settings{};   // besides the file's
    bool narrows = false;  // to find the word that makes others differ
  };
  /// Before the rows with these settings.
  void begin(const Settings& settings);
  /// Before rows that tell which of these words of a layout that differs make it differ.
  void begin_narrowing(const std::string& layout, const std::vector<std::string>& words);
  void show(const Row& row, const LayoutVerdict& verdict);
  /// What the layouts that differ have in common, if several ran.
  struct Common {
    Departure first;  // of the plainest one
    std::vector<std::string> words;
    bool together = false;  // layouts that are equal have some of the words, but not all
  };
  /// `left`: layouts that a signal kept from running.
  void finish(std::int64_t left, const std::optional<Common>& common);
  bool all_equal() const { return failed_ == 0; }

 private:
  void line(const std::vector<std::string>& cells, const std::string& last);
  void add_json(const Row& row, const LayoutVerdict& verdict);
  void finish_json(std::int64_t left, const std::optional<Common>& common);
  void finish_table(std::int64_t left, const std::optional<Common>& common);

  Options options_;
  const LayoutSelection& selection_;
  std::vector<std::size_t> widths_;
  std::int64_t equal_ = 0;
  std::int64_t failed_ = 0;
  struct JsonRows;
  std::unique_ptr<JsonRows> json_;
};

/// Progress, on stderr: a live line on a terminal; otherwise, if no rows are printed, a plain line
/// every five seconds.
class VerifyStatus {
 public:
  explicit VerifyStatus(bool rows_tell);
  void show(const std::string& what);
  void clear();

 private:
  bool live_;
  bool plain_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace trainctl
