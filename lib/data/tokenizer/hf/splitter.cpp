#include "data/tokenizer/hf/splitter.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/hf/utf8.h"

namespace trainctl::hf {

namespace {

constexpr std::string_view gpt2_words =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

Pattern read_pattern(const JsonValue& value) {
  value.allow_only({"String", "Regex"});
  const JsonValue regex = value["Regex"];
  if (regex.is_null() == value["String"].is_null()) value.refuse("expected a Regex or a String");
  if (regex.is_null()) return Pattern::literal(value["String"].text());
  const std::string text = regex.text();
  try {
    return Pattern(text);
  } catch (const Error& error) {
    regex.refuse(error.what());
  }
}

/// Calls piece(begin, end, is_match) for all of `text`: the matches and what is between them. An
/// empty match is one, except right after a match.
template <class Piece>
void each_piece(const Pattern& pattern, std::string_view text, Matcher& matcher, Piece piece) {
  std::size_t from = 0;
  std::size_t before = 0;  // the end of the last match
  bool has_match = false;
  Match match;
  while (from <= text.size() && matcher.find(pattern, text, from, match)) {
    if (match.begin == match.end && has_match && match.end == before) {
      from += from < text.size() ? first_character_bytes(text.substr(from)) : 1;
      continue;
    }
    if (before != match.begin) piece(before, match.begin, false);
    piece(match.begin, match.end, true);
    from = before = match.end;
    has_match = true;
  }
  if (before != text.size()) piece(before, text.size(), false);
}

}  // namespace

Splitter::Splitter(const JsonValue& pre_tokenizer) {
  read(pre_tokenizer, 0);
  if (!is_complete_) {
    pre_tokenizer.refuse("has no ByteLevel step: only byte-level tokenizers are built");
  }
}

void Splitter::read(const JsonValue& value, int depth) {
  if (value.is_null()) value.refuse("has no ByteLevel step: only byte-level tokenizers are built");
  if (depth == deepest_sequence) value.refuse("sequences nest more than 16 deep");
  const std::string type = value["type"].text();
  if (type == "Sequence") {
    value.allow_only({"type", "pretokenizers"});
    value["pretokenizers"].each_item([&](const JsonValue& item) { read(item, depth + 1); });
    return;
  }
  if (is_complete_) value.refuse("follows ByteLevel, which must be last");
  if (type == "Split") {
    steps_.push_back(read_split(value));
  } else if (type == "Digits") {
    steps_.push_back(read_digits(value));
  } else if (type == "ByteLevel") {
    steps_.push_back(read_byte_level(value));
    is_complete_ = true;
  } else {
    value["type"].refuse("pre-tokenizer " + in_quotes(type) +
                         " is not built: ByteLevel, Split, Digits or Sequence");
  }
}

Splitter::Step Splitter::read_split(const JsonValue& value) {
  static constexpr std::pair<std::string_view, Behaviour> behaviours[] = {
      {"Isolated", Behaviour::isolated},
      {"Removed", Behaviour::removed},
      {"MergedWithPrevious", Behaviour::merged_with_previous},
      {"MergedWithNext", Behaviour::merged_with_next},
      {"Contiguous", Behaviour::contiguous}};
  value.allow_only({"type", "pattern", "behavior", "invert"});
  Step step;
  step.pattern = read_pattern(value["pattern"]);
  step.inverted = value["invert"].flag();
  const std::string name = value["behavior"].text();
  const auto found = std::find_if(std::begin(behaviours), std::end(behaviours),
                                  [&](const auto& known) { return known.first == name; });
  if (found == std::end(behaviours)) {
    value["behavior"].refuse(in_quotes(name) +
                             ": expected Isolated, Removed, MergedWithPrevious, MergedWithNext "
                             "or Contiguous");
  }
  step.behaviour = found->second;
  return step;
}

Splitter::Step Splitter::read_digits(const JsonValue& value) {
  value.allow_only({"type", "individual_digits"});
  Step step;
  step.pattern.emplace("\\p{N}");
  const bool alone = value["individual_digits"].flag();
  step.behaviour = alone ? Behaviour::isolated : Behaviour::contiguous;
  return step;
}

Splitter::Step Splitter::read_byte_level(const JsonValue& value) {
  // trim_offsets only moves the offsets of tokens, which nothing here uses.
  value.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  Step step;
  step.prefixes_space = value["add_prefix_space"].flag();
  const JsonValue use_regex = value["use_regex"];
  if (use_regex.is_null() || use_regex.flag()) step.pattern.emplace(gpt2_words);
  return step;
}

void Splitter::split(std::string_view text, bool continues, Matcher& matcher,
                     const Take& take) const {
  run(0, text, {matcher, take, continues ? text.data() : nullptr});
}

void Splitter::run(std::size_t step, std::string_view piece, const Walk& walk) const {
  if (piece.empty()) return;
  if (step == steps_.size()) return walk.take(piece);
  if (!steps_[step].prefixes_space || piece.starts_with(' ') || piece.data() == walk.continued) {
    return separate(step, piece, walk);
  }
  separate(step, " " + std::string(piece), walk);
}

void Splitter::separate(std::size_t step, std::string_view piece, const Walk& walk) const {
  const Step& rule = steps_[step];
  if (!rule.pattern) return run(step + 1, piece, walk);
  // The piece that the next one may join.
  std::size_t begin = 0;
  std::size_t end = 0;
  bool was_match = false;
  const auto joins = [&](bool is_match) {
    switch (rule.behaviour) {
      case Behaviour::merged_with_previous: return is_match && !was_match;
      case Behaviour::merged_with_next: return was_match && !is_match;
      case Behaviour::contiguous: return was_match == is_match;
      default: return false;
    }
  };
  const auto give = [&] { run(step + 1, piece.substr(begin, end - begin), walk); };
  each_piece(*rule.pattern, piece, walk.matcher,
             [&](std::size_t from, std::size_t to, bool is_found) {
               const bool is_match = is_found != rule.inverted;
               if (!joins(is_match)) {
                 give();
                 begin = from;
               }
               const bool is_removed = is_match && rule.behaviour == Behaviour::removed;
               end = is_removed ? begin : to;
               was_match = is_match;
             });
  give();
}

}  // namespace trainctl::hf
