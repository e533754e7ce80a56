// Tokens that are found in text as they are, before it is split into words: the "added_tokens" of a
// tokenizer.json.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/hf/byte_pairs.h"
#include "data/tokenizer/hf/json_value.h"
#include "data/tokenizer/hf/normalizer.h"
#include "data/tokenizer/hf/pattern.h"

namespace trainctl::hf {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;
  bool single_word = false;  // only where no word character is beside it
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for in normalised text
};

/// A part of a text: a token, or text without one (-1).
struct TextPart {
  std::string_view text;
  std::int32_t token = -1;
};

class AddedTokens {
 public:
  /// Throws Error{bad_data}, also where the reference library would give a token another id than
  /// the file does.
  AddedTokens(const JsonValue& list, const BytePairs& model, const Normalizer& normalizer);

  /// Appends the parts of `text`: first of raw text, then of each part's normalised text.
  void cut_raw(std::string_view text, Matcher& matcher, std::vector<TextPart>& out) const {
    cut(raw_, text, matcher, out);
  }
  void cut_normalized(std::string_view text, Matcher& matcher, std::vector<TextPart>& out) const {
    cut(normalized_, text, matcher, out);
  }
  const std::vector<AddedToken>& all() const { return all_; }

 private:
  /// What is looked for, sorted, with the index in all_.
  struct Set {
    std::vector<std::pair<std::string, std::size_t>> contents;
    std::array<bool, 256> begins{};  // the first bytes of the contents
  };
  static AddedToken read(const JsonValue& value);
  void read_all(const JsonValue& list, const BytePairs& model);
  void build(Set& set, bool normalized, const Normalizer& normalizer) const;
  static const std::pair<std::string, std::size_t>* longest(const Set& set, std::string_view text);
  void cut(const Set& set, std::string_view text, Matcher& matcher,
           std::vector<TextPart>& out) const;
  bool is_single_word(std::string_view before, std::string_view after, Matcher& matcher) const;

  std::vector<AddedToken> all_;
  Set raw_;
  Set normalized_;
  Pattern word_character_;
};

}  // namespace trainctl::hf
