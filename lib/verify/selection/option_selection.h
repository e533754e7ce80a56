// Combinations of settings other than the file's, for comparisons: each word of option_keys()
// occurs in some combination, or each pair of words in one.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/read/read.h"
#include "verify/switches/option_words.h"

namespace trainctl {

/// The file with more settings than its own, which come last.
using ReadWith = std::function<ReadResult(const Settings& settings)>;

struct OptionSelection {
  /// Words, each with what it needs; in the order of option_keys().
  std::vector<std::vector<Settings>> combinations;
  /// Code of the rule -> words that a single rank cannot run with anything else as in the file.
  std::map<std::string, std::vector<std::string>> skipped;
  std::map<std::string, std::string> rules;  // code -> the first message of it
};

/// Combinations that a single rank can run. `pairs`: with each pair of words, and of a word and
/// another key's value in the file, that such a combination has.
OptionSelection select_options(const ReadWith& read, bool pairs);

/// All settings of a combination.
Settings settings_of(const std::vector<Settings>& words);

}  // namespace trainctl
