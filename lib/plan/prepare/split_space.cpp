#include "plan/prepare/split_space.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/at.h"
#include "config/schema/words.h"

namespace trainctl {

namespace {

using MaybeWord = std::optional<SplitBy>;

constexpr SplitBy all_words[] = {SplitBy::features, SplitBy::tokens, SplitBy::whole};

std::vector<SplitBy> words_for(const MaybeWord& given, bool searched) {
  if (given) return {*given};
  if (!searched) return {SplitBy::features};
  return {std::begin(all_words), std::end(all_words)};
}

std::vector<SplitChoice> end_choices(const SearchedSplits& given, bool tied, bool searched) {
  std::vector<SplitChoice> choices;
  if (tied) {
    for (const SplitBy word : words_for(given.head ? given.head : given.embedding, searched)) {
      choices.push_back({given.embedding.value_or(word), given.head.value_or(word)});
    }
    return choices;
  }
  for (const SplitBy embedding : words_for(given.embedding, searched)) {
    for (const SplitBy head : words_for(given.head, searched)) choices.push_back({embedding, head});
  }
  return choices;
}

std::vector<SplitChoice> layer_choices(const MaybeWord& attention, const MaybeWord& feed_forward,
                                       bool experts, bool searched) {
  std::vector<SplitChoice> choices;
  for (const SplitBy first : words_for(attention, searched)) {
    if (experts) {
      choices.push_back({first});
      continue;
    }
    for (const SplitBy second : words_for(feed_forward, searched)) {
      choices.push_back({first, second});
    }
  }
  return choices;
}

/// The choice of a group with one split of all layers replaced; nullopt if the group lacks it.
std::optional<GroupChoice> with_word(const LayerGroup& group, const GroupChoice& now, bool second,
                                     SplitBy word) {
  const auto number_of = [&](std::size_t choice) -> std::optional<std::size_t> {
    const MaybeWord other = at(group.choices, choice).word(!second);
    for (std::size_t i = 0; i < group.choices.size(); ++i) {
      const SplitChoice& one = group.choices[i];
      if (one.word(second) == word && one.word(!second) == other) return i;
    }
    return std::nullopt;
  };
  const auto first = number_of(now.first);
  const auto rest = number_of(now.rest);
  if (!first || !rest) return std::nullopt;
  const bool mixed = *first != *rest;
  return GroupChoice{*first, *rest, mixed ? now.count : std::ssize(group.layers)};
}

}  // namespace

SplitSpace split_space(const ModelShape& model, const SearchedSplits& given,
                       std::int64_t tensor_parallel) {
  const bool searched = tensor_parallel > 1;
  SplitSpace space{.tensor_parallel = tensor_parallel,
                   .layers = model.layers,
                   .tied = model.tied,
                   .ends = end_choices(given, model.tied, searched)};
  std::map<std::tuple<int, MaybeWord, MaybeWord>, std::size_t> numbers;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    const MaybeWord& attention = at(given.attention, layer);
    const MaybeWord& feed_forward = at(given.feed_forward, layer);
    const auto [found, is_new] = numbers.try_emplace(
        std::tuple(model.kind_number(layer), attention, feed_forward), space.groups.size());
    if (is_new) {
      space.groups.push_back(
          {.choices = layer_choices(attention, feed_forward, model.kind(layer).experts, searched)});
    }
    at(space.groups, found->second).layers.push_back(layer);
  }
  return space;
}

bool SplitChoices::is_mixed() const { return std::ranges::any_of(groups, &GroupChoice::is_mixed); }

SplitChoices SplitSpace::uniform(std::size_t number) const {
  SplitChoices layout{.tensor_parallel = tensor_parallel, .ends = number % ends.size()};
  for (const LayerGroup& group : groups) {
    const std::size_t choice = number % group.choices.size();
    layout.groups.push_back({choice, choice, std::ssize(group.layers)});
  }
  return layout;
}

std::size_t SplitSpace::max_choices() const {
  std::size_t most = ends.size();
  for (const LayerGroup& group : groups) most = std::max(most, group.choices.size());
  return most;
}

void SplitSpace::sort() {
  std::ranges::stable_sort(ends, {}, &SplitChoice::seconds);
  for (LayerGroup& group : groups)
    std::ranges::stable_sort(group.choices, {}, &SplitChoice::seconds);
}

double SplitSpace::seconds(const SplitChoices& layout) const {
  double sum = at(ends, layout.ends).seconds;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const LayerGroup& group = groups[i];
    const GroupChoice& one = at(layout.groups, i);
    const auto rest = static_cast<double>(std::ssize(group.layers) - one.count);
    sum += static_cast<double>(one.count) * at(group.choices, one.first).seconds +
           rest * at(group.choices, one.rest).seconds;
  }
  return sum;
}

SearchedSplits SplitSpace::splits(const SplitChoices& layout) const {
  SearchedSplits splits = no_splits(layers);
  splits.embedding = at(ends, layout.ends).first;
  splits.head = at(ends, layout.ends).second;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const LayerGroup& group = groups[i];
    const GroupChoice& one = at(layout.groups, i);
    for (std::int64_t k = 0; k < std::ssize(group.layers); ++k) {
      const SplitChoice& words = at(group.choices, k < one.count ? one.first : one.rest);
      at(splits.attention, at(group.layers, k)) = words.first;
      at(splits.feed_forward, at(group.layers, k)) = words.second;
    }
  }
  return splits;
}

std::vector<std::pair<SplitChoices, std::size_t>> SplitSpace::slower(const SplitChoices& layout,
                                                                     std::size_t part) const {
  std::vector<std::pair<SplitChoices, std::size_t>> next;
  for (; part <= groups.size(); ++part) {
    SplitChoices one = layout;
    if (part == 0) {
      if (++one.ends == ends.size()) continue;
    } else {
      GroupChoice& group = at(one.groups, part - 1);
      if (++group.first == at(groups, part - 1).choices.size()) continue;
      group.rest = group.first;
    }
    next.emplace_back(std::move(one), part);
  }
  return next;
}

std::vector<SplitChoices> SplitSpace::mixed(const SplitChoices& layout) const {
  std::vector<SplitChoices> next;
  const auto add = [&](std::size_t group, GroupChoice choice) {
    SplitChoices one = layout;
    at(one.groups, group) = choice;
    next.push_back(std::move(one));
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const GroupChoice& one = at(layout.groups, i);
    const std::int64_t most = std::ssize(groups[i].layers);
    if (one.is_mixed()) {
      const std::int64_t count = one.first < one.rest ? one.count - 1 : one.count + 1;
      if (count > 0 && count < most) add(i, {one.first, one.rest, count});
      continue;
    }
    for (std::size_t other = one.first + 1; most > 1 && other < groups[i].choices.size(); ++other) {
      add(i, {one.first, other, most - 1});
      add(i, {other, one.first, 1});
    }
  }
  return next;
}

void SplitSpace::each_neighbour(
    const SplitChoices& layout,
    const std::function<void(const SplitChoices& other, std::size_t part, bool second)>& near)
    const {
  const SplitChoice& tables = at(ends, layout.ends);
  for (std::size_t other = 0; other < ends.size(); ++other) {
    const bool same_embedding = ends[other].first == tables.first;
    const bool same_head = ends[other].second == tables.second;
    if (other == layout.ends || (!tied && !same_embedding && !same_head)) continue;
    SplitChoices one = layout;
    one.ends = other;
    near(one, 0, same_embedding);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const bool second : {false, true}) {
      for (const SplitBy word : all_words) {
        const auto choice = with_word(groups[i], at(layout.groups, i), second, word);
        if (!choice || *choice == at(layout.groups, i)) continue;
        SplitChoices one = layout;
        at(one.groups, i) = *choice;
        near(one, i + 1, second);
      }
    }
  }
}

std::string SplitSpace::text(const SplitChoices& layout, std::size_t part, bool second) const {
  if (part == 0) return std::string(word_of(*at(ends, layout.ends).word(second)));
  const LayerGroup& group = at(groups, part - 1);
  const GroupChoice& one = at(layout.groups, part - 1);
  std::vector<SplitBy> words;
  for (std::int64_t k = 0; k < std::ssize(group.layers); ++k) {
    const MaybeWord word = at(group.choices, k < one.count ? one.first : one.rest).word(second);
    if (!word) return "none";
    words.push_back(*word);
  }
  return layer_splits_text(words);
}

}  // namespace trainctl
