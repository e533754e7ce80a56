// Regular expressions over valid UTF-8, behind plain types; the library's headers stay in one
// source file.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace trainctl::hf {

class Matcher;

/// A compiled pattern; used by many threads, each with its own Matcher.
class Pattern {
 public:
  /// A pattern as written in tokenizer.json. Throws Error{bad_data} that names a refused part.
  explicit Pattern(std::string_view regex);
  /// A pattern that matches exactly `text`.
  static Pattern literal(std::string_view text);
  /// A pattern for a word character, \w of Rust's regex crate, at the start of a text.
  static Pattern of_word_character();
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

 private:
  friend class Matcher;
  struct Code;
  Pattern(std::string_view text, bool is_literal);
  std::unique_ptr<Code> code_;
};

struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The working memory of matching, for one thread.
class Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  /// The first match that begins at `from` or later; false if there is none. Throws Error{bad_data}
  /// where the pattern takes too many steps or too much memory on this text.
  bool find(const Pattern& pattern, std::string_view text, std::size_t from, Match& found);

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

}  // namespace trainctl::hf
