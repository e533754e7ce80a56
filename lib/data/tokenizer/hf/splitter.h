// Text to words, which are encoded one by one: the "pre_tokenizer" of a tokenizer.json.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizer/hf/json_value.h"
#include "data/tokenizer/hf/pattern.h"

namespace trainctl::hf {

class Splitter {
 public:
  /// ByteLevel, alone or last in a Sequence; before it Split and Digits. Throws Error{bad_data} for
  /// others.
  explicit Splitter(const JsonValue& pre_tokenizer);

  using Take = std::function<void(std::string_view word)>;
  /// Calls take(word) for each word of valid UTF-8 text, in order; words are not empty. With
  /// `continues`, the text goes on from an earlier one, and no space is put before it.
  void split(std::string_view text, bool continues, Matcher& matcher, const Take& take) const;

 private:
  enum class Behaviour { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  struct Step {
    std::optional<Pattern> pattern;  // nothing: all of the text is one piece
    Behaviour behaviour = Behaviour::isolated;
    bool inverted = false;        // the pattern matches what is between the separators
    bool prefixes_space = false;  // puts a space before a piece that has none
  };
  struct Walk {
    Matcher& matcher;
    const Take& take;
    const char* continued;  // where a piece begins that gets no space; null: nowhere
  };

  void read(const JsonValue& value, int depth);
  static Step read_split(const JsonValue& value);
  static Step read_digits(const JsonValue& value);
  static Step read_byte_level(const JsonValue& value);
  void run(std::size_t step, std::string_view piece, const Walk& walk) const;
  void separate(std::size_t step, std::string_view piece, const Walk& walk) const;

  std::vector<Step> steps_;
  bool is_complete_ = false;  // ByteLevel has been read
};

}  // namespace trainctl::hf
