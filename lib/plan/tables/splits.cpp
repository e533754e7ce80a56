#include "plan/tables/splits.h"

#include <algorithm>

#include "base/text.h"
#include "config/schema/words.h"

namespace trainctl {

std::optional<SplitBy> parse_split(std::string_view word) {
  for (const SplitBy split : all_splits) {
    if (word == word_of(split)) return split;
  }
  return {};
}

ParsedList<SplitBy> parse_layer_splits(std::string_view text, std::int64_t layers) {
  if (const auto one = parse_split(trimmed(text))) {
    return {std::vector<SplitBy>(static_cast<std::size_t>(layers), *one), ""};
  }
  return parse_per_layer<SplitBy>(text, layers, "splits", parse_split);
}

std::string layer_splits_text(const std::vector<SplitBy>& splits) {
  std::string text;
  for (auto first = splits.begin(); first != splits.end();) {
    const auto next = std::find_if(first, splits.end(), [&](SplitBy one) { return one != *first; });
    const std::string word(word_of(*first));
    if (first == splits.begin() && next == splits.end()) return word;
    const std::string times = next - first > 1 ? formatted("*{}", next - first) : "";
    text += (text.empty() ? "" : ", ") + word + times;
    first = next;
  }
  return text;
}

namespace {

std::string text_of(const OperatorSplits& splits, SplitBy BlockSplit::*member) {
  std::vector<SplitBy> each{BlockSplit{}.*member};
  if (!splits.blocks.empty()) each.clear();
  for (const BlockSplit& block : splits.blocks) each.push_back(block.*member);
  return layer_splits_text(each);
}

}  // namespace

std::string OperatorSplits::attention_text() const {
  return text_of(*this, &BlockSplit::attention);
}

std::string OperatorSplits::feed_forward_text() const {
  return text_of(*this, &BlockSplit::feed_forward);
}

bool OperatorSplits::any_attention(SplitBy split) const {
  if (blocks.empty()) return split == SplitBy::features;
  return std::ranges::any_of(blocks, [&](BlockSplit one) { return one.attention == split; });
}

bool OperatorSplits::any_feed_forward(SplitBy split) const {
  if (blocks.empty()) return split == SplitBy::features;
  return std::ranges::any_of(blocks, [&](BlockSplit one) { return one.feed_forward == split; });
}

OperatorSplits for_decoding(OperatorSplits splits) {
  const auto settle = [](SplitBy& split) {
    if (split == SplitBy::tokens) split = SplitBy::whole;
  };
  settle(splits.embedding);
  settle(splits.head);
  for (BlockSplit& block : splits.blocks) {
    settle(block.attention);
    settle(block.feed_forward);
  }
  return splits;
}

}  // namespace trainctl
