#include "data/tokenizer/hf/byte_alphabet.h"

#include <array>

#include "data/tokenizer/hf/utf8.h"

namespace trainctl::hf {

namespace {

/// Printable characters of Latin-1, except the soft hyphen, stand for themselves.
bool is_itself(char32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<int, 512> bytes{};  // by character; -1: none

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 256;  // the other bytes are numbered from here, in order
    for (char32_t byte = 0; byte < 256; ++byte) {
      characters[byte] = is_itself(byte) ? byte : next++;
      bytes[characters[byte]] = static_cast<int>(byte);
    }
  }
};

const Alphabet alphabet;

}  // namespace

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const char32_t character = first_code_point(token);
    if (character >= alphabet.bytes.size() || alphabet.bytes[character] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet.bytes[character]);
    token.remove_prefix(first_character_bytes(token));
  }
  return bytes;
}

std::string token_of_byte(unsigned char byte) {
  std::string token;
  append_code_point(alphabet.characters[byte], token);
  return token;
}

}  // namespace trainctl::hf
