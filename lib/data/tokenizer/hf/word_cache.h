// The tokens of words that were met lately, for one thread: a table of fixed size in which a word
// takes the place of another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace trainctl::hf {

class WordCache {
 public:
  WordCache() : entries_(places) {}

  /// The tokens of `word`; empty if it is not known.
  std::span<const std::int32_t> find(std::string_view word) const {
    const Entry& entry = entries_[place_of(word)];
    const bool is_it = word.size() == entry.bytes && word.size() <= most_bytes &&
                       std::memcmp(word.data(), entry.word, word.size()) == 0;
    return {entry.tokens, is_it ? entry.count : std::size_t{0}};
  }

  /// Longer words, and words of more tokens, are not kept.
  void keep(std::string_view word, std::span<const std::int32_t> tokens) {
    if (word.size() > most_bytes || tokens.size() > most_tokens) return;
    Entry& entry = entries_[place_of(word)];
    entry.bytes = static_cast<std::uint8_t>(word.size());
    entry.count = static_cast<std::uint8_t>(tokens.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(tokens.begin(), tokens.end(), entry.tokens);
  }

 private:
  static constexpr std::size_t places = std::size_t{1} << 16;
  static constexpr std::size_t most_bytes = 30;
  static constexpr std::size_t most_tokens = 8;

  struct alignas(64) Entry {
    std::uint8_t bytes = 0;
    std::uint8_t count = 0;
    char word[most_bytes] = {};
    std::int32_t tokens[most_tokens] = {};
  };

  static std::size_t place_of(std::string_view word) {
    return std::hash<std::string_view>()(word) % places;
  }

  std::vector<Entry> entries_;  // 4 MiB
};

}  // namespace trainctl::hf
