// The printable characters that byte-level tokenizers write for bytes: GPT-2's bytes_to_unicode.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trainctl::hf {

/// The bytes for which a token's characters stand; nothing if one of them stands for no byte.
/// `token` is valid UTF-8.
std::optional<std::string> bytes_of_token(std::string_view token);

/// The token that stands for `byte` alone.
std::string token_of_byte(unsigned char byte);

}  // namespace trainctl::hf
