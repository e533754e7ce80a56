// The words for settings of sections train, optimizer, lr_schedule, precision, data and moe, for
// comparisons with settings other than the file's. Each key has values worth trying, or a reason to
// try none. A new key needs a row; the test `verify` reports keys without one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/config.h"

namespace trainctl {

/// Settings in the form of `--set`: "optimizer.type=sgd".
using Settings = std::vector<std::string>;

/// The sections whose keys have rows here.
inline constexpr std::string_view option_sections[] = {"train",     "optimizer", "lr_schedule",
                                                       "precision", "data",      "moe"};

struct OptionKey {
  std::string_view path;
  /// Values separated by "|"; "*" stands for each word of the key. A value may be followed by other
  /// settings to use with it. {half}, {batch}, {batches} stand for half, once and three times the
  /// file's sequences per step; {halfrow} for half a sequence.
  std::string_view values;
  /// Whether the key has an effect in a configuration. If nullptr, it always has.
  bool (*acts)(const Config& config) = nullptr;
  /// The reason why no value is tried.
  std::string_view apart = {};
};

/// All keys, in the order of the sections' fields.
std::span<const OptionKey> option_keys();

/// A word with its further settings as text: "optimizer.type=sgd", "a=1 b=2".
std::string word_text(const Settings& word);

/// The values of a key to try, each with its further settings. Empty for a key with `apart`.
std::vector<Settings> option_words(const OptionKey& key, const Config& file);

}  // namespace trainctl
