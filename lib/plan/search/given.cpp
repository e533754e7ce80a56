#include "plan/search/given.h"

#include <algorithm>

#include "base/at.h"

namespace trainctl {

namespace {

using Words = std::vector<std::optional<SplitBy>>;

bool has_word(const std::optional<SplitBy>& split) { return split.has_value(); }

void read_words(const std::optional<std::string>& text, Words& words) {
  if (!text) return;
  const ParsedList<SplitBy> read = parse_layer_splits(*text, std::ssize(words));
  if (read.error.empty()) words.assign(read.values.begin(), read.values.end());
}

std::optional<std::string> text_of(const Words& words) {
  if (std::ranges::none_of(words, has_word)) return std::nullopt;
  std::vector<SplitBy> splits;
  for (const auto& word : words) splits.push_back(word.value_or(SplitBy::features));
  return layer_splits_text(splits);
}

}  // namespace

bool SearchedSplits::any() const {
  return embedding || head || std::ranges::any_of(attention, has_word) ||
         std::ranges::any_of(feed_forward, has_word);
}

std::optional<SplitBy>& SearchedSplits::of(SearchOperator which, std::int64_t layer) {
  if (which == "head") return head;
  return at(which == "attention" ? attention : feed_forward, layer);
}

const std::optional<SplitBy>& SearchedSplits::of(SearchOperator which, std::int64_t layer) const {
  if (which == "head") return head;
  return at(which == "attention" ? attention : feed_forward, layer);
}

SearchedSplits no_splits(std::int64_t layers) {
  const Words none(static_cast<std::size_t>(layers));
  return {.attention = none, .feed_forward = none};
}

SearchedSplits given_splits(const OperatorSplitsConfig& said, std::int64_t layers) {
  SearchedSplits splits = no_splits(layers);
  splits.embedding = said.embedding;
  splits.head = said.head;
  read_words(said.attention, splits.attention);
  read_words(said.feed_forward, splits.feed_forward);
  return splits;
}

OperatorSplitsConfig splits_config(const SearchedSplits& splits) {
  return {.embedding = splits.embedding,
          .head = splits.head,
          .attention = text_of(splits.attention),
          .feed_forward = text_of(splits.feed_forward)};
}

}  // namespace trainctl
