// Reads the table in upstream.h from upstream_keys.txt.

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "config/schema/words.h"
#include "config/upstream/upstream.h"

namespace trainctl {

std::string_view embedded_upstream_keys_txt();  // upstream_keys.txt, embedded by lib/embed.cmake

namespace {

constexpr std::pair<std::string_view, std::string_view> sections[] = {
    {"parallel_config", "parallel"}, {"recompute_config", "recompute"}, {"moe_config", "moe"}};

/// The row "KEY = DEFAULT -> OURS {CONVERSION} (write REPLACEMENT) ; NOTE".
UpstreamKey upstream_row(std::string_view text) {
  UpstreamKey row;
  std::string_view values = take_until(text, " ; ");
  row.note = text;
  row.key = take_until(values, " = ");
  row.fallback = take_until(values, " -> ");
  std::string_view path = take_until(values, " (write ");
  row.replacement = take_until(values, ")");
  row.path = take_until(path, " {");
  const std::string_view conversion = path.empty() ? "same" : take_until(path, "}");
  const auto how = std::ranges::find(words_of<Conversion>, conversion, &Word::text);
  require(how != words_of<Conversion>.end(), ExitCode::internal,
          formatted("upstream_keys.txt: unknown conversion '{}'", conversion));
  row.conversion = Conversion(how->value);
  return row;
}

}  // namespace

std::span<const std::pair<std::string_view, std::string_view>> upstream_sections() {
  return sections;
}

std::span<const UpstreamKey> upstream_keys(std::string_view list) {
  const std::vector<UpstreamKey>& all = all_upstream_keys();
  const auto first = std::ranges::find(all, list, &UpstreamKey::list);
  return {first, std::ranges::find_if(first, all.end(),
                                      [&](const UpstreamKey& row) { return row.list != list; })};
}

std::span<const UpstreamKey> further_keys(std::string_view list) {
  return upstream_keys(formatted("further_{}", list));
}

const std::vector<UpstreamKey>& all_upstream_keys() {
  static const std::vector<std::string> texts = table_rows(embedded_upstream_keys_txt());
  static const std::vector<UpstreamKey> keys = [] {
    std::vector<UpstreamKey> all;
    std::string_view list, section;
    for (std::string_view text : texts) {
      if (text.starts_with('[')) {
        section = text.substr(1, text.size() - 2);
        list = take_until(section, " ");
        continue;
      }
      UpstreamKey row = upstream_row(text);
      row.list = list;
      if (!section.empty()) row.section = section;
      all.push_back(row);
    }
    return all;
  }();
  return keys;
}

}  // namespace trainctl
