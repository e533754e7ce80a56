#include <algorithm>
#include <cstdio>

#include "config/yaml/tree.h"

namespace trainctl {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xC0U) == 0x80U; }

/// Bytes of the UTF-8 sequence at `at`, 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte(at + i))) return 0;
  }
  const unsigned char second = byte(at + 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool too_large = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

std::string hex(unsigned char byte) {
  char text[8];
  std::snprintf(text, sizeof text, "0x%02X", byte);
  return text;
}

struct Finding {
  std::string code;
  std::string message;
  std::string help;
};

Finding bad_byte(unsigned char byte) {
  return {"encoding", "the byte " + hex(byte) + " is not valid UTF-8", "save the file as UTF-8"};
}

Finding bad_control(unsigned char code) {
  return {"control-character", "the control character " + hex(code) + " is not allowed",
          "remove it; a UTF-16 file must be saved as UTF-8"};
}

}  // namespace

std::string normalise_text(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      result += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      result += '\n';
    }
  }
  return result;
}

bool check_text(const std::string& text, const YamlTree::Text& source, Diagnostics& diagnostics) {
  const auto refuse = [&](Finding finding, int line, int column) {
    Place place{source.origin, source.name, line, column, line > 0 ? column + 1 : 0};
    diagnostics.add({Severity::error, std::move(finding.code), "", std::move(finding.message),
                     std::move(finding.help), std::move(place)});
    return false;
  };
  if (text.size() > max_yaml_bytes) {
    return refuse({"too-large", "a configuration must be at most 1 MiB", "is this the right file?"},
                  0, 0);
  }
  int line = 1;
  int column = 1;
  bool indentation = true;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = utf8_length(text, i);
    const bool c1 = byte == 0xC2 && length == 2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || c1;
    if (length == 0) return refuse(bad_byte(byte), line, column);
    if (control) {
      return refuse(bad_control(c1 ? static_cast<unsigned char>(text[i + 1]) : byte), line, column);
    }
    if (byte == '\t' && indentation) {
      const std::size_t next = text.find_first_not_of(" \t", i);
      if (next != std::string::npos && text[next] != '\n' && text[next] != '#') {
        return refuse({"tab", "a tab must not be used for indentation", "use spaces"}, line,
                      column);
      }
    }
    indentation = byte == '\n' || (indentation && (byte == ' ' || byte == '\t'));
    column = byte == '\n' ? 1 : column + 1;
    line += byte == '\n' ? 1 : 0;
    i += length;
  }
  return true;
}

}  // namespace trainctl
