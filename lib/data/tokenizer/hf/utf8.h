// UTF-8 text as bytes: where characters begin and end, and what is not valid.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trainctl::hf {

inline constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

/// Bytes of `text` before its first invalid sequence; text.size() where it is valid.
std::size_t valid_prefix(std::string_view text);

/// `text` with U+FFFD for each invalid sequence: each longest beginning of a character, else each
/// byte, as in chapter 3.9 of the Unicode standard and Python's errors="replace".
std::string replace_invalid(std::string_view text);

/// Bytes at the end of `text` that begin a character and do not end it: 0 to 3.
std::size_t unfinished_bytes(std::string_view text);

/// Bytes of the first, or last, character of valid text that is not empty.
std::size_t first_character_bytes(std::string_view text);
std::size_t last_character_bytes(std::string_view text);

/// The first code point of valid text that is not empty.
char32_t first_code_point(std::string_view text);
void append_code_point(char32_t code_point, std::string& out);

}  // namespace trainctl::hf
