#include "data/tokenizer/hf/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "data/tokenizer/hf/utf8.h"

namespace trainctl::hf {

namespace {

/// White_Space.
bool is_space(char32_t point) {
  return (point >= 0x9 && point <= 0xd) || point == 0x20 || point == 0x85 || point == 0xa0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200a) || point == 0x2028 ||
         point == 0x2029 || point == 0x202f || point == 0x205f || point == 0x3000;
}

std::string_view last_character(std::string_view text) {
  return text.substr(text.size() - last_character_bytes(text));
}

std::size_t spaces_at_end(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const std::string_view last = last_character(text.substr(0, text.size() - bytes));
    if (!is_space(first_code_point(last))) break;
    bytes += last.size();
  }
  return bytes;
}

std::size_t spaces_at_start(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size() && is_space(first_code_point(text.substr(bytes)))) {
    bytes += first_character_bytes(text.substr(bytes));
  }
  return bytes;
}

}  // namespace

AddedTokens::AddedTokens(const JsonValue& list, const BytePairs& model,
                         const Normalizer& normalizer)
    : word_character_(Pattern::of_word_character()) {
  if (!list.is_null()) read_all(list, model);
  build(raw_, false, normalizer);
  build(normalized_, true, normalizer);
}

AddedToken AddedTokens::read(const JsonValue& value) {
  value.allow_only({"id", "content", "special", "single_word", "lstrip", "rstrip", "normalized"});
  AddedToken token;
  token.content = value["content"].text();
  if (token.content.empty()) value["content"].refuse("is empty");
  token.id = static_cast<std::int32_t>(value["id"].whole(0, most_token_id));
  token.special = value["special"].flag();
  token.single_word = value["single_word"].flag();
  token.lstrip = value["lstrip"].flag();
  token.rstrip = value["rstrip"].flag();
  token.normalized = value["normalized"].flag();
  return token;
}

/// The reference library ignores the ids of the file: a token has its id of the vocabulary, or the
/// next free one.
void AddedTokens::read_all(const JsonValue& list, const BytePairs& model) {
  std::unordered_set<std::string> contents;
  std::int64_t next = model.size();
  list.each_item([&](const JsonValue& value) {
    AddedToken token = read(value);
    if (!contents.insert(token.content).second) value["content"].refuse("is there twice");
    const std::int64_t expected =
        model.id_of(token.content).value_or(static_cast<std::int32_t>(next));
    if (token.id != expected) {
      value["id"].refuse("expected " + std::to_string(expected) +
                         ", the id that the Hugging Face library gives this token, found " +
                         std::to_string(token.id));
    }
    next = std::max<std::int64_t>(next, token.id + 1);
    all_.push_back(std::move(token));
  });
}

/// Of tokens with the same normal form, the first special one counts, else the first.
void AddedTokens::build(Set& set, bool normalized, const Normalizer& normalizer) const {
  for (const bool special : {true, false}) {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].normalized != normalized || all_[i].special != special) continue;
      std::string storage;
      const std::string_view text =
          normalized ? normalizer.apply(all_[i].content, storage) : all_[i].content;
      set.contents.emplace_back(text, i);
      set.begins[static_cast<unsigned char>(text.front())] = true;
    }
  }
  const auto by_text = [](const auto& a, const auto& b) { return a.first < b.first; };
  const auto same_text = [](const auto& a, const auto& b) { return a.first == b.first; };
  std::stable_sort(set.contents.begin(), set.contents.end(), by_text);
  set.contents.erase(std::unique(set.contents.begin(), set.contents.end(), same_text),
                     set.contents.end());
}

/// The longest content that `text` begins with; null without one.
const std::pair<std::string, std::size_t>* AddedTokens::longest(const Set& set,
                                                                std::string_view text) {
  const std::pair<std::string, std::size_t>* best = nullptr;
  auto begin = set.contents.begin();
  auto end = set.contents.end();
  for (std::size_t depth = 0; begin != end; ++depth) {
    if (begin->first.size() == depth) best = &*begin++;  // the shorter sorts first
    if (depth == text.size()) break;
    const auto wanted = static_cast<unsigned char>(text[depth]);
    const auto letter = [depth](const auto& content) {
      return static_cast<unsigned char>(content.first[depth]);
    };
    begin = std::partition_point(begin, end,
                                 [&](const auto& content) { return letter(content) < wanted; });
    end = std::partition_point(begin, end,
                               [&](const auto& content) { return letter(content) == wanted; });
  }
  return best;
}

bool AddedTokens::is_single_word(std::string_view before, std::string_view after,
                                 Matcher& matcher) const {
  Match found;
  const bool word_before =
      !before.empty() && matcher.find(word_character_, last_character(before), 0, found);
  return !word_before &&
         (after.empty() ||
          !matcher.find(word_character_, after.substr(0, first_character_bytes(after)), 0, found));
}

void AddedTokens::cut(const Set& set, std::string_view text, Matcher& matcher,
                      std::vector<TextPart>& out) const {
  std::size_t cut_at = 0;  // the text before is in `out`
  for (std::size_t place = 0; place < text.size();) {
    const auto* found = set.begins[static_cast<unsigned char>(text[place])]
                            ? longest(set, text.substr(place))
                            : nullptr;
    if (found == nullptr) {
      ++place;
      continue;
    }
    const AddedToken& token = all_[found->second];
    std::size_t begin = place;
    std::size_t end = place + found->first.size();
    place = end;
    if (token.single_word && !is_single_word(text.substr(0, begin), text.substr(end), matcher)) {
      continue;
    }
    if (token.lstrip) begin = std::max(begin - spaces_at_end(text.substr(0, begin)), cut_at);
    if (token.rstrip) end += spaces_at_start(text.substr(end));
    if (cut_at < begin) out.push_back({text.substr(cut_at, begin - cut_at)});
    out.push_back({text.substr(begin, end - begin), token.id});
    cut_at = end;
  }
  if (cut_at != text.size()) out.push_back({text.substr(cut_at)});
}

}  // namespace trainctl::hf
