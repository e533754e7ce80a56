#include "data/tokenizer/hf/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <string>

#include "base/error.h"
#include "data/tokenizer/hf/dialect.h"

namespace trainctl::hf {

namespace {

constexpr std::size_t least_stack = std::size_t{32} << 10;
constexpr std::size_t most_stack = std::size_t{64} << 20;

/// PCRE2's words for one of its codes.
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
  memory_->stack.reset(pcre2_jit_stack_create(least_stack, most_stack, nullptr));
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
}

Matcher::~Matcher() = default;

bool Matcher::find(const Pattern& pattern, std::string_view text, std::size_t from, Match& found) {
  const int result = pcre2_match(pattern.code_->code.get(), bytes_of(text), text.size(), from,
                                 PCRE2_NO_UTF_CHECK, memory_->data.get(), memory_->context.get());
  if (result == PCRE2_ERROR_NOMATCH) return false;
  // 0: there are more groups than the one place that is kept, of the whole match.
  if (result < 0) {
    throw Error(ExitCode::bad_data, "a pattern of the tokenizer failed on " +
                                        std::to_string(text.size()) +
                                        " bytes of text: " + words_of(result));
  }
  const PCRE2_SIZE* places = pcre2_get_ovector_pointer(memory_->data.get());
  found = {places[0], places[1]};
  return true;
}

}  // namespace trainctl::hf
