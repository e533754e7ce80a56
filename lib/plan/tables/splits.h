// Parses texts with a value for each layer ("full*2, none*3": "*n" repeats a value), and tells how
// the ranks of a tensor-parallel group share each operator of the model (docs/operator-splits.md).
// plan/tables/layout.h has the tensor layouts that follow from a split.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// The text before the first `mark`; sets `rest` to the text after it.
inline std::string_view cut(std::string_view text, char mark, std::string_view& rest) {
  const std::size_t at = text.find(mark);
  rest = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return trimmed(text.substr(0, at));
}

/// The values of a text that has one for each layer or stage.
template <class Value>
struct ParsedList {
  std::vector<Value> values;
  std::string error;  // reason why the text is invalid, or empty
};

/// Reads values with parse(text), which gives std::optional<Value>. More than `most` values are an
/// error, whose text calls values `plural`.
template <class Value, class Parse>
ParsedList<Value> parse_repeated(std::string_view text, std::int64_t most, const char* plural,
                                 const Parse& parse) {
  ParsedList<Value> read;
  std::string_view rest = text;
  do {
    const std::string_view entry = cut(rest, ',', rest);
    std::string_view times;
    const auto value = parse(cut(entry, '*', times));
    std::int64_t count = 1;
    if (entry.find('*') != std::string_view::npos) {
      times = trimmed(times);
      const char* end = times.data() + times.size();
      const auto [stop, status] = std::from_chars(times.data(), end, count);
      if (status != std::errc() || stop != end) count = 0;
    }
    if (!value || count < 1) {
      read.error = "cannot read '" + std::string(entry) + "'";
      return read;
    }
    if (count > most - std::ssize(read.values)) {
      read.error = "it has more than " + std::to_string(most) + " " + plural;
      return read;
    }
    read.values.insert(read.values.end(), static_cast<std::size_t>(count), *value);
  } while (!rest.empty());
  return read;
}

/// Like parse_repeated, but exactly `layers` values are required.
template <class Value, class Parse>
ParsedList<Value> parse_per_layer(std::string_view text, std::int64_t layers, const char* plural,
                                  const Parse& parse) {
  ParsedList<Value> read = parse_repeated<Value>(text, layers, plural, parse);
  if (read.error.empty() && std::ssize(read.values) < layers) {
    read.error = "it has " + std::to_string(read.values.size()) + " " + plural;
  }
  return read;
}

// By features, each rank has a part of the weights and computes its features for all tokens; by
// tokens, it has all weights and computes all features of its share of tokens; whole, it computes
// everything.
inline constexpr SplitBy all_splits[] = {SplitBy::features, SplitBy::tokens, SplitBy::whole};

/// nullopt if `word` is not the name of a split.
std::optional<SplitBy> parse_split(std::string_view word);
/// Reads one word for all `layers` layers, or one for each: "features*2, tokens*3".
ParsedList<SplitBy> parse_layer_splits(std::string_view text, std::int64_t layers);

/// The shortest text for these splits; at least one layer is required.
std::string layer_splits_text(const std::vector<SplitBy>& splits);

/// The splits of one block. `feed_forward` is used for plain MLPs only; experts have their own
/// axes.
struct BlockSplit {
  SplitBy attention = SplitBy::features, feed_forward = SplitBy::features;
  friend bool operator==(const BlockSplit&, const BlockSplit&) = default;
};

struct OperatorSplits {
  // Splits of the token table and of the head; irrelevant with one tensor-parallel rank.
  SplitBy embedding = SplitBy::whole, head = SplitBy::whole;
  // Tokens are exchanged for heads by one all-to-all; if false, by an all-gather of which each rank
  // uses its part.
  bool moves_at_once = false;
  std::vector<BlockSplit> blocks{};  // by layer of the model; empty if all are by features

  /// The splits of a unit of the model (plan/tables/stage_map.h); embedding and head have none.
  BlockSplit of_unit(int unit) const {
    const bool block = unit > 0 && unit <= static_cast<std::int64_t>(blocks.size());
    return block ? blocks[static_cast<std::size_t>(unit) - 1] : BlockSplit{};
  }
  /// The texts that parse_layer_splits() reads.
  std::string attention_text() const;
  std::string feed_forward_text() const;
  /// Whether any operator of the model has this split.
  bool any(SplitBy split) const {
    return embedding == split || head == split || any_attention(split) || any_feed_forward(split);
  }
  bool any_attention(SplitBy split) const;
  bool any_feed_forward(SplitBy split) const;
  friend bool operator==(const OperatorSplits&, const OperatorSplits&) = default;
};

/// Uses one split for the token table and the head; blocks are split by features.
inline OperatorSplits with_vocabulary(SplitBy split) { return {.embedding = split, .head = split}; }

/// The splits for generating text a few tokens at a time: `whole` where training splits by tokens.
OperatorSplits for_decoding(OperatorSplits splits);

}  // namespace trainctl
