// The words for settings in the sections train, optimizer, lr_schedule, precision, data and moe,
// for comparisons of other settings than the file's: each key has values worth trying, or a reason
// why it takes no part. A new key needs a row; the test `verify` names those without one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"

namespace trainctl {

/// As `--set` takes them: "optimizer.type=sgd".
using Settings = std::vector<std::string>;

/// The sections whose keys have rows.
inline constexpr std::string_view option_sections[] = {"train",     "optimizer", "lr_schedule",
                                                       "precision", "data",      "moe"};

struct OptionKey {
  std::string_view path;
  /// Values with "|" between; "*": each word of the key. A value may be followed by other settings
  /// that are tried with it. {half}, {batch}, {batches}: half of the file's sequences per step,
  /// all, three times as many; {halfrow}: half of a sequence.
  std::string_view values;
  /// Whether the key has an effect in a configuration; nullptr: always.
  bool (*acts)(const Config& config) = nullptr;
  /// Why no value is tried.
  std::string_view apart = {};
};

/// In the order of the sections' fields.
std::span<const OptionKey> option_keys();

/// A word with what it needs: "optimizer.type=sgd", "a=1 b=2".
std::string word_text(const Settings& word);

/// The values of one key to try, with the settings that they need. Empty for a key apart.
std::vector<Settings> option_words(const OptionKey& key, const Config& file);

}  // namespace trainctl
