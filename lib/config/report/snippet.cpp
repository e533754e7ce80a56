#include "config/report/snippet.h"

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace trainctl {
namespace {

/// One string per character.
std::vector<std::string> characters_of(const std::string& line) {
  std::vector<std::string> result;
  for (char c : line) {
    if ((static_cast<unsigned char>(c) & 0xC0U) == 0x80U && !result.empty()) {
      result.back() += c;
    } else {
      result.emplace_back(1, c);
    }
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t steering = text[i] == '\n' ? 1 : steering_bytes(text, i);
    result += steering > 0 ? '?' : text[i];
    i += steering > 1 ? steering - 1 : 0;
  }
  return result;
}

Snippet make_snippet(const Diagnostics& diagnostics, const Place& place) {
  constexpr std::size_t widest = 160;
  constexpr std::size_t lead = 60;  // characters kept before the place when the line is cut
  const std::vector<std::string> line = characters_of(printable(diagnostics.source_line(place)));
  if (line.empty() || place.column < 1) return {};
  const std::size_t start = std::min(static_cast<std::size_t>(place.column) - 1, line.size());
  const bool cut = line.size() > widest;
  const std::size_t from = cut && start > lead ? start - lead : 0;
  const std::size_t to = cut ? std::min(line.size(), from + widest) : line.size();
  Snippet snippet;
  if (from > 0) {
    snippet.text = "...";
    snippet.padding = "   ";
  }
  for (std::size_t i = from; i < to; ++i) {
    snippet.text += line[i];
    if (i < start) snippet.padding += line[i] == "\t" ? '\t' : ' ';
  }
  if (to < line.size()) snippet.text += "...";
  const std::size_t end = std::min(static_cast<std::size_t>(std::max(place.end_column, 1)) - 1, to);
  snippet.highlight = start - from + (from > 0 ? 3 : 0);
  snippet.length = end > start ? end - start : 1;
  return snippet;
}

}  // namespace trainctl
