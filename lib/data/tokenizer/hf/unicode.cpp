#include "data/tokenizer/hf/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace trainctl::hf {

namespace {

unsigned char byte_at(std::string_view text, std::size_t place) {
  return static_cast<unsigned char>(text[place]);
}

/// Bytes of a character that begins with `lead`; 0 if none begins with it.
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

namespace {

/// Whether a byte stands for itself: printable Latin-1, except the soft hyphen.
bool is_itself(char32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
}

struct Alphabet {
  std::array<char32_t, 256> characters{};
  std::array<int, 512> bytes{};  // the byte of each character; -1 for none

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

namespace {

bool is_ascii(char byte) { return (static_cast<unsigned char>(byte) & 0x80U) == 0; }

auto combining_class(utf8proc_int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

/// Puts marks that follow each other into canonical order. utf8proc's own sort takes quadratic time
/// for long runs of marks.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  const auto is_mark = [](utf8proc_int32_t point) { return combining_class(point) != 0; };
  for (auto begin = code_points.begin(); begin != code_points.end();) {
    begin = std::find_if(begin, code_points.end(), is_mark);
    const auto end = std::find_if_not(begin, code_points.end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return combining_class(a) < combining_class(b);
    });
    begin = end;
  }
}

}  // namespace

Normalizer::Normalizer(const JsonValue& normalizer) { read(normalizer, 0); }

void Normalizer::read(const JsonValue& normalizer, int depth) {
  if (normalizer.is_null()) return;
  if (depth == deepest_sequence) normalizer.refuse("sequences nest more than 16 deep");
  const std::string type = normalizer["type"].text();
  if (type == "Sequence") {
    normalizer.allow_only({"type", "normalizers"});
    normalizer["normalizers"].each_item([&](const JsonValue& item) {
      if (item.is_null()) item.refuse("expected a normalizer, found null");
      read(item, depth + 1);
    });
    return;
  }
  if (type != "NFC" && type != "NFD" && type != "NFKC" && type != "NFKD") {
    normalizer["type"].refuse("normalizer " + in_quotes(type) +
                              " is not built: NFC, NFD, NFKC, NFKD or Sequence");
  }
  normalizer.allow_only({"type"});
  forms_.push_back(type);
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  if (forms_.empty() || std::all_of(text.begin(), text.end(), is_ascii)) return text;
  std::string before;
  for (const std::string& form : forms_) {
    storage.swap(before);
    storage.clear();
    append(form, &form == &forms_.front() ? text : std::string_view(before), storage);
  }
  return storage;
}

/// ASCII characters keep their places and never combine with the text before them: only runs of
/// other characters, each with the character before it, need work.
void Normalizer::append(const std::string& form, std::string_view text, std::string& out) {
  while (!text.empty()) {
    const auto other = std::find_if_not(text.begin(), text.end(), is_ascii);
    const auto found = static_cast<std::size_t>(other - text.begin());
    const std::size_t plain = other == text.end() ? found : std::max<std::size_t>(found, 1) - 1;
    out += text.substr(0, plain);
    const auto end = std::find_if(other, text.end(), is_ascii);
    const auto used = static_cast<std::size_t>(end - text.begin());
    append_normal(form, text.substr(plain, used - plain), out);
    text.remove_prefix(used);
  }
}

void Normalizer::append_normal(const std::string& form, std::string_view text, std::string& out) {
  const bool composes = form.ends_with('C');
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (form.starts_with("NFK") ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> code_points;
  for (; !text.empty(); text.remove_prefix(first_character_bytes(text))) {
    std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition has 18
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(first_code_point(text)), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
    code_points.insert(code_points.end(), parts.begin(),
                       parts.begin() + std::clamp<utf8proc_ssize_t>(count, 0, parts.size()));
  }
  order_marks(code_points);
  auto size = static_cast<utf8proc_ssize_t>(code_points.size());
  if (composes) size = utf8proc_normalize_utf32(code_points.data(), size, options);
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    append_code_point(static_cast<char32_t>(code_points[static_cast<std::size_t>(i)]), out);
  }
}

}  // namespace trainctl::hf
