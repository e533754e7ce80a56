// UTF-8 text, the byte alphabet of byte-level tokenizers, and Unicode normal forms.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/hf/json_value.h"

namespace trainctl::hf {

inline constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

/// Bytes of `text` before its first invalid sequence; text.size() if all of it is valid.
std::size_t valid_prefix(std::string_view text);

/// `text` with U+FFFD for each invalid sequence: each longest beginning of a character, else each
/// byte, as in chapter 3.9 of the Unicode standard and Python's errors="replace".
std::string replace_invalid(std::string_view text);

/// The number of bytes of an unfinished character at the end of `text`: 0 to 3.
std::size_t unfinished_bytes(std::string_view text);

/// Bytes of the first, or last, character of valid text that is not empty.
std::size_t first_character_bytes(std::string_view text);
std::size_t last_character_bytes(std::string_view text);

/// The first code point of valid text that is not empty.
char32_t first_code_point(std::string_view text);
void append_code_point(char32_t code_point, std::string& out);

// The printable characters that byte-level tokenizers write for bytes: GPT-2's bytes_to_unicode.

/// The bytes for which the characters of `token`, valid UTF-8, stand; nothing if some character
/// stands for no byte.
std::optional<std::string> bytes_of_token(std::string_view token);

/// The token that stands for `byte` alone.
std::string token_of_byte(unsigned char byte);

// Unicode normal forms, selected by the "normalizer" of a tokenizer.json.

class Normalizer {
 public:
  /// Accepts null, NFC, NFD, NFKC, NFKD, or a Sequence of those. Throws Error{bad_data} for others.
  explicit Normalizer(const JsonValue& normalizer);

  /// `text` normalised: in `storage`, or `text` itself where nothing changes. `text` is valid
  /// UTF-8.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  void read(const JsonValue& normalizer, int depth);
  static void append(const std::string& form, std::string_view text, std::string& out);
  static void append_normal(const std::string& form, std::string_view text, std::string& out);

  std::vector<std::string> forms_;  // NFC, NFD, NFKC or NFKD
};

}  // namespace trainctl::hf
