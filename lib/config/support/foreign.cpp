// Reads the keys without a counterpart from foreign.txt, and explains them.

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/schema/values.h"
#include "config/schema/words.h"
#include "config/support/standing.h"
#include "config/yaml/numbers.h"

namespace trainctl {

std::string_view embedded_foreign_txt();  // foreign.txt, embedded by lib/embed.cmake

namespace {

/// The keys of the row "ANSWER KEY=PLAIN KEY ; INSTEAD" of a section.
void add_foreign(std::string_view section, std::string_view row, std::vector<ForeignKey>& all) {
  std::string_view keys = take_until(row, " ; ");
  const std::string_view word = take_until(keys, " ");
  const auto answer = std::ranges::find(words_of<ForeignKey::Answer>, word, &Word::text);
  require(answer != words_of<ForeignKey::Answer>.end(), ExitCode::internal,
          formatted("foreign.txt: unknown answer '{}'", word));
  while (!keys.empty()) {
    std::string_view plain = take_until(keys, " ");
    const std::string_view key = take_until(plain, "=");
    all.push_back({section, key, ForeignKey::Answer(answer->value), plain, row});
  }
}

/// Whether a word means the same in quotes, unlike "false" and "1".
bool is_name(const std::string& text) {
  double number = 0;
  const std::string word = lower_case(text);
  return word != "true" && word != "false" && parse_number(text, number).has_value();
}

}  // namespace

const std::vector<ForeignKey>& foreign_keys() {
  static const std::vector<std::string> rows = table_rows(embedded_foreign_txt());
  static const std::vector<ForeignKey> keys = [] {
    std::vector<ForeignKey> all;
    std::string_view section;
    for (std::string_view row : rows) {
      if (row.starts_with('[')) {
        section = row.substr(1, row.size() - 2);
      } else {
        add_foreign(section, row, all);
      }
    }
    return all;
  }();
  return keys;
}

const ForeignKey* find_foreign(std::string_view section, std::string_view key) {
  for (const ForeignKey& row : foreign_keys()) {
    if (row.section == section && row.key == key) return &row;
  }
  return nullptr;
}

bool asks_nothing(const ForeignKey& foreign, const YamlNode& value) {
  switch (value.kind) {
    case YamlNode::Kind::null: return true;
    case YamlNode::Kind::map: return value.entries.empty();
    case YamlNode::Kind::sequence: return value.items.empty();
    case YamlNode::Kind::scalar: break;
  }
  if (value.scalar.empty()) return true;
  if (value.quoted && !is_name(value.scalar)) return false;
  const std::vector<std::string> plain = split_words(foreign.plain);
  double number = 0;
  double other = 0;
  const bool is_number = !value.quoted && !parse_number(value.scalar, number);
  return std::any_of(plain.begin(), plain.end(), [&](const std::string& word) {
    return word == lower_case(value.scalar) || word == value.scalar ||
           (is_number && !parse_number(word, other) && number == other);
  });
}

std::string help_of(const ForeignKey& foreign) {
  if (foreign.instead.empty()) return "remove it";
  return (foreign.instead.starts_with("use ") ? "" : "write ") + std::string(foreign.instead);
}

}  // namespace trainctl
