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
    std::string_view line = take_until(table, "\n");
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with(' ')) {
      line.remove_prefix(line.find_first_not_of(' '));
      rows.back() += (rows.back().ends_with('|') ? "" : " ") + std::string(line);
    } else {
      rows.emplace_back(line);
    }
  }
  return rows;
}

}  // namespace trainctl
