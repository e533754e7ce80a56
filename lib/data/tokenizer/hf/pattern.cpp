#include "data/tokenizer/hf/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/tokenizer/hf/json_value.h"

namespace trainctl::hf {

// Patterns of tokenizer.json are written for Oniguruma. Here they are rewritten for PCRE2.

namespace {

// The spaces that \s matches in Oniguruma: White_Space. (PCRE2 has U+180E too.)
constexpr std::string_view spaces =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr std::string_view other_than_spaces =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-"
    "\\x{10ffff}";

// The characters that \w matches in Oniguruma: in a character class, and alone, where six fractions
// and powers match, too.
constexpr std::string_view word_class = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view word_alone =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

constexpr std::string_view categories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

bool is_alphanumeric(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
         (letter >= 'A' && letter <= 'Z');
}

bool is_hex(char letter) {
  return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f') ||
         (letter >= 'A' && letter <= 'F');
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : rest_(pattern) {}

  std::string run() {
    while (!rest_.empty()) {
      switch (rest_[0]) {
        case '\\': escape(false); break;
        case '[': character_class(); break;
        case '(': open_group(); break;
        case ')':
          if (!caseless_.empty()) caseless_.pop_back();
          copy(1);
          break;
        case '{': repetition(); break;
        case '^':
        case '$': refuse(1);
        default: copy(1); break;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::size_t bytes) const {
    throw Error(ExitCode::bad_data,
                in_quotes(std::string(rest_.substr(0, bytes))) + " is not supported in a pattern");
  }

  void copy(std::size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(std::min(bytes, rest_.size()));
  }

  void replace(std::size_t bytes, std::string_view by) {
    out_ += by;
    rest_.remove_prefix(bytes);
  }

  void open_group() {
    static constexpr std::string_view plain[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const bool inherits = !caseless_.empty() && caseless_.back();
    if (rest_.starts_with("(?i:")) {
      caseless_.push_back(true);
      return copy(4);
    }
    for (const std::string_view opening : plain) {
      if (!rest_.starts_with(opening)) continue;
      caseless_.push_back(inherits);
      return copy(opening.size());
    }
    if (rest_.starts_with("(?") || rest_.starts_with("(*")) refuse(3);
    caseless_.push_back(inherits);
    copy(1);
  }

  /// Copies {n}, {n,} or {n,m}; refuses a possessive one, which Oniguruma reads in another way.
  void repetition() {
    const std::size_t end = rest_.find('}');
    if (end == std::string_view::npos || end < 2 || rest_[1] == ',' ||
        rest_.substr(1, end - 1).find_first_not_of("0123456789,") != std::string_view::npos) {
      refuse(1);
    }
    if (end + 1 < rest_.size() && rest_[end + 1] == '+') refuse(end + 2);
    copy(end + 1);
  }

  void character_class() {
    copy(1);
    if (rest_.starts_with("^")) copy(1);
    if (rest_.starts_with("]")) refuse(1);
    while (!rest_.empty() && rest_[0] != ']') {
      if (rest_[0] == '[' || rest_.starts_with("&&")) refuse(rest_[0] == '[' ? 1 : 2);
      if (rest_[0] == '\\') {
        escape(true);
      } else {
        copy(1);
      }
    }
    copy(1);  // PCRE2 reports a missing bracket
  }

  void escape(bool in_class) {
    const char letter = rest_.size() > 1 ? rest_[1] : '\0';
    const std::string open = in_class ? "" : "[";
    const std::string close = in_class ? "" : "]";
    switch (letter) {
      case 's': return replace(2, open + std::string(spaces) + close);
      case 'S': return replace(2, open + std::string(other_than_spaces) + close);
      case 'w':
        return replace(2, in_class ? std::string(word_class) : "[" + std::string(word_alone) + "]");
      case 'W':
        if (in_class) refuse(2);
        return replace(2, "[^" + std::string(word_alone) + "]");
      case 'd': return replace(2, "\\p{Nd}");
      case 'D': return replace(2, "\\P{Nd}");
      case 'n':
      case 'r':
      case 't':
      case 'f': return copy(2);
      case 'v': return replace(2, "\\x{b}");
      case 'p':
      case 'P': return property();
      case 'x': return code_point(rest_.starts_with("\\x{") ? 3 : 2);
      case 'u': return code_point(2);
      case '\0': refuse(1);
      default: break;
    }
    if (is_alphanumeric(letter) || (static_cast<unsigned char>(letter) & 0x80U) != 0) refuse(2);
    copy(2);
  }

  /// Rewrites \xHH below 0x80, \x{H...} and \uHHHH.
  void code_point(std::size_t opening) {
    const bool braces = opening == 3;
    const std::size_t most = braces ? 8 : rest_[1] == 'u' ? 4 : 2;
    std::size_t digits = 0;
    while (digits < most && opening + digits < rest_.size() && is_hex(rest_[opening + digits])) {
      ++digits;
    }
    const std::string number(rest_.substr(opening, digits));
    const std::size_t bytes = opening + digits + (braces ? 1 : 0);
    const bool is_whole =
        braces ? digits > 0 && rest_.substr(opening + digits).starts_with("}") : digits == most;
    const bool is_byte = rest_[1] == 'x' && !braces && is_whole && number[0] >= '8';
    if (!is_whole || is_byte) refuse(std::min(bytes, rest_.size()));
    replace(bytes, "\\x{" + number + "}");
  }

  /// Rewrites \p{Name}, \P{Name} and \p{^Name}, with a general category or a script.
  void property() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 4 || rest_[2] != '{' || end == std::string_view::npos) refuse(3);
    std::string name(rest_.substr(3, end - 3));
    std::string start(rest_.substr(0, 3));
    if (name.starts_with('^')) {
      start += '^';
      name.erase(0, 1);
    }
    const bool is_category =
        std::find(std::begin(categories), std::end(categories), name) != std::end(categories);
    const bool is_word = !name.empty() && std::all_of(name.begin(), name.end(), [](char letter) {
      return is_alphanumeric(letter) || letter == '_';
    });
    // When it ignores case, PCRE2 widens the categories of cased letters.
    const bool has_case = name == "Lu" || name == "Ll" || name == "Lt";
    if (!is_word || (has_case && !caseless_.empty() && caseless_.back())) refuse(end + 1);
    replace(end + 1, start + (is_category ? "" : "sc:") + name + "}");
  }

  std::string_view rest_;
  std::string out_;
  std::vector<bool> caseless_;  // whether each open group ignores case
};

/// Rewrites a pattern for PCRE2 with UTF and UCP. An expression with another meaning in PCRE2 is
/// spelled out, or refused with an Error{bad_data} that names it.
std::string pcre_of(std::string_view pattern) { return Rewriter(pattern).run(); }

constexpr std::size_t min_stack = std::size_t{32} << 10;
constexpr std::size_t max_stack = std::size_t{64} << 20;

/// PCRE2's text for one of its error codes.
std::string words_of(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

PCRE2_SPTR bytes_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

template <class T>
std::unique_ptr<T, Free> owned(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return std::unique_ptr<T, Free>(made);
}

}  // namespace

struct Pattern::Code {
  std::unique_ptr<pcre2_code, Free> code;
};

struct Matcher::Memory {
  std::unique_ptr<pcre2_match_data, Free> data = owned(pcre2_match_data_create(1, nullptr));
  std::unique_ptr<pcre2_match_context, Free> context = owned(pcre2_match_context_create(nullptr));
  std::unique_ptr<pcre2_jit_stack, Free> stack;  // null where PCRE2 is built without JIT
};

Pattern::Pattern(std::string_view text, bool is_literal) : code_(std::make_unique<Code>()) {
  const auto context = owned(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const std::uint32_t options = PCRE2_UTF | (is_literal ? PCRE2_LITERAL : PCRE2_UCP);
  int failure = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code =
      pcre2_compile(bytes_of(text), text.size(), options, &failure, &place, context.get());
  require(code != nullptr, ExitCode::bad_data, "not a pattern: " + words_of(failure));
  code_->code.reset(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it, matching is only slower
}

Pattern::Pattern(std::string_view regex) : Pattern(pcre_of(regex), false) {}
Pattern Pattern::literal(std::string_view text) { return {text, true}; }
Pattern Pattern::of_word_character() {
  return {"\\A[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]", false};
}
Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

Matcher::Matcher() : memory_(std::make_unique<Memory>()) {
  memory_->stack.reset(pcre2_jit_stack_create(min_stack, max_stack, nullptr));
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
}

Matcher::~Matcher() = default;

bool Matcher::find(const Pattern& pattern, std::string_view text, std::size_t from, Match& found) {
  const int result = pcre2_match(pattern.code_->code.get(), bytes_of(text), text.size(), from,
                                 PCRE2_NO_UTF_CHECK, memory_->data.get(), memory_->context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  // 0 means that the pattern has groups: only the place of the whole match is kept.
  if (result < 0) {
    throw Error(ExitCode::bad_data,
                formatted("a pattern of the tokenizer failed on {} bytes of text: {}", text.size(),
                          words_of(result)));
  }
  const PCRE2_SIZE* places = pcre2_get_ovector_pointer(memory_->data.get());
  found = {places[0], places[1]};
  return true;
}

}  // namespace trainctl::hf
