#include "data/tokenizer/hf/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace trainctl::hf {

namespace {

unsigned char byte_at(std::string_view text, std::size_t place) {
  return static_cast<unsigned char>(text[place]);
}

/// Bytes of a character that begins with `lead`; 0 for what begins none.
std::size_t bytes_after(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/// Whether `next` may follow `lead`: no overlong forms, no surrogates, nothing above U+10FFFF.
bool may_follow(unsigned char lead, unsigned char next) {
  const unsigned char least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  return next >= least && next <= most;
}

struct Sequence {
  std::size_t bytes = 1;
  enum class Kind { valid, invalid, unfinished } kind = Kind::valid;
};

/// The character that `text` begins with, or the longest beginning of one.
Sequence first_sequence(std::string_view text) {
  const unsigned char lead = byte_at(text, 0);
  const std::size_t wanted = bytes_after(lead);
  if (wanted == 0) return {1, Sequence::Kind::invalid};
  for (std::size_t i = 1; i < wanted; ++i) {
    if (i == text.size()) return {i, Sequence::Kind::unfinished};
    const unsigned char next = byte_at(text, i);
    const bool fits = i == 1 ? may_follow(lead, next) : (next & 0xc0U) == 0x80U;
    if (!fits) return {i, Sequence::Kind::invalid};
  }
  return {wanted, Sequence::Kind::valid};
}

}  // namespace

std::size_t valid_prefix(std::string_view text) {
  std::size_t place = 0;
  while (place < text.size()) {
    std::uint64_t eight = 0;
    if (text.size() - place >= sizeof eight) {
      std::memcpy(&eight, text.data() + place, sizeof eight);
      if ((eight & 0x8080808080808080U) == 0) {
        place += sizeof eight;
        continue;
      }
    }
    const Sequence sequence = first_sequence(text.substr(place));
    if (sequence.kind != Sequence::Kind::valid) return place;
    place += sequence.bytes;
  }
  return place;
}

std::string replace_invalid(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    const std::size_t good = valid_prefix(text);
    valid += text.substr(0, good);
    text.remove_prefix(good);
    if (text.empty()) break;
    valid += replacement;
    text.remove_prefix(first_sequence(text).bytes);
  }
  return valid;
}

std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::string_view end = text.substr(text.size() - back);
    if ((byte_at(end, 0) & 0xc0U) == 0x80U) continue;
    const Sequence sequence = first_sequence(end);
    const bool is_unfinished =
        sequence.kind == Sequence::Kind::unfinished && sequence.bytes == back;
    return is_unfinished ? back : 0;
  }
  return 0;
}

std::size_t first_character_bytes(std::string_view text) { return bytes_after(byte_at(text, 0)); }

std::size_t last_character_bytes(std::string_view text) {
  std::size_t back = 1;
  while (back < text.size() && (byte_at(text, text.size() - back) & 0xc0U) == 0x80U) ++back;
  return back;
}

char32_t first_code_point(std::string_view text) {
  const std::size_t bytes = first_character_bytes(text);
  if (bytes == 1) return byte_at(text, 0);
  char32_t code_point = byte_at(text, 0) & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    code_point = (code_point << 6U) | (byte_at(text, i) & 0x3fU);
  }
  return code_point;
}

void append_code_point(char32_t code_point, std::string& out) {
  const auto tail = [&](unsigned shift) {
    out += static_cast<char>(0x80U | ((code_point >> shift) & 0x3fU));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xc0U | (code_point >> 6U));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xe0U | (code_point >> 12U));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0U | (code_point >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace trainctl::hf
