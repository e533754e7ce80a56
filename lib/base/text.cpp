#include "base/text.h"

#include <algorithm>

namespace trainctl {

std::string_view take_until(std::string_view& text, std::string_view end) {
  const std::size_t length = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, length);
  text.remove_prefix(std::min(length + end.size(), text.size()));
  return taken;
}

std::string listed(const std::vector<std::string>& texts, std::string_view last) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) all += i + 1 == texts.size() ? last : ", ";
    all += texts[i];
  }
  return all;
}

std::vector<std::string> table_rows(std::string_view table) {
  std::vector<std::string> rows;
  while (!table.empty()) {
    const std::string_view line = take_until(table, "\n");
    if (line.starts_with('#')) continue;
    const std::string_view text = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    if (text.empty()) continue;
    if (line.starts_with(' ') && !rows.empty()) {
      rows.back() += (rows.back().ends_with('|') ? "" : " ") + std::string(text);
    } else {
      rows.emplace_back(text);
    }
  }
  return rows;
}

}  // namespace trainctl
