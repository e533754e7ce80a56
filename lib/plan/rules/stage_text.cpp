#include "plan/rules/stage_text.h"

#include <cstddef>

namespace trainctl {

namespace {

constexpr std::size_t most_letters = 1'000'000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  StageLayout read() {
    const std::string letters = sequence(0);
    if (error_.empty() && at_ < text_.size()) fail("unmatched ')'");
    StageLayout layout;
    layout.error = error_;
    if (!error_.empty()) return layout;
    layout.stages.emplace_back();
    for (const char letter : letters) {
      if (letter == '|') {
        layout.stages.emplace_back();
      } else {
        layout.stages.back() += letter;
      }
    }
    return layout;
  }

 private:
  void fail(const std::string& what) {
    if (error_.empty()) error_ = what + " at character " + std::to_string(at_ + 1);
  }
  void skip_cosmetics() {
    while (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ' ')) ++at_;
  }

  /// Up to the end or, inside parentheses, to the one that closes them.
  std::string sequence(int depth) {
    std::string letters;
    for (skip_cosmetics(); at_ < text_.size() && error_.empty(); skip_cosmetics()) {
      if (text_[at_] == ')') break;
      const std::string item = text_[at_] == '(' ? parenthesis(depth) : letter();
      const std::size_t count = error_.empty() ? repetition() : 0;
      if (letters.size() + item.size() * count > most_letters) {
        fail("more than 1,000,000 letters");
        break;
      }
      for (std::size_t i = 0; i < count; ++i) letters += item;
    }
    return letters;
  }

  std::string parenthesis(int depth) {
    if (depth >= 64) {
      fail("more than 64 nested parentheses");
      return {};
    }
    ++at_;
    std::string inside = sequence(depth + 1);
    if (!error_.empty()) return {};
    if (at_ == text_.size()) {
      fail("missing ')'");
      return {};
    }
    ++at_;
    return inside;
  }

  std::string letter() {
    const char c = text_[at_];
    if (std::string_view("EtmL|").find(c) == std::string_view::npos) {
      const bool shown = c > ' ' && c < 127;
      fail(std::string("expected E, t, m, L, |, *n, ( or ), found '") + (shown ? c : '?') + "'");
      return {};
    }
    ++at_;
    return std::string(1, c);
  }

  /// "*3" after a letter or a parenthesis; 1 without one.
  std::size_t repetition() {
    skip_cosmetics();
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    ++at_;
    skip_cosmetics();
    std::size_t count = 0;
    const std::size_t begin = at_;
    for (; at_ < text_.size() && is_digit(text_[at_]) && count <= most_letters; ++at_) {
      count = count * 10 + static_cast<std::size_t>(text_[at_] - '0');
    }
    if (at_ == begin) fail("expected a number after '*'");
    if (error_.empty() && count == 0) fail("'*0' must be at least '*1'");
    if (count > most_letters) fail("more than 1,000,000 letters");
    return count;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string error_;
};

}  // namespace

StageLayout parse_stage_layout(std::string_view text) { return Reader(text).read(); }

}  // namespace trainctl
