// docs/exit-codes.md is the list of exit codes, with those after which a run is started again.
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "catch.h"
#include "process.h"

namespace {

struct Row {
  std::string name;
  std::string restart;
};

/// By the first column.
std::map<std::string, Row> rows_of_page() {
  std::ifstream page(TRAINCTL_SOURCE_DIR "/docs/exit-codes.md");
  const std::regex row(R"(\| ([^|]+) \| ([a-z_]*) ?\| (yes|no) \| .*)");
  std::map<std::string, Row> rows;
  std::smatch parts;
  for (std::string line; std::getline(page, line);) {
    if (std::regex_match(line, parts, row)) rows[parts[1]] = {parts[2], parts[3]};
  }
  return rows;
}

/// The codes that the program has, by number.
std::map<std::string, std::string> codes_of_program() {
  std::ifstream header(TRAINCTL_SOURCE_DIR "/lib/base/error.h");
  const std::regex code(R"(\s*([a-z_]+) = (\d+),.*)");
  std::map<std::string, std::string> codes;
  std::smatch parts;
  for (std::string line; std::getline(header, line);) {
    if (std::regex_match(line, parts, code)) codes[parts[2]] = parts[1];
  }
  return codes;
}

}  // namespace

TEST_CASE("the page has every exit code, and says which start again") {
  const auto rows = rows_of_page();
  const auto codes = codes_of_program();
  REQUIRE(codes.size() == 14);
  for (const auto& [number, name] : codes) {
    INFO(number << " " << name);
    REQUIRE(rows.contains(number));
    CHECK(rows.at(number).name == name);
  }
  CHECK(rows.size() == codes.size() + 2);  // 130, and 128 + n
  const std::set<std::string> again{"69", "70", "74", "75", "76", "128 + n"};
  for (const auto& [number, row] : rows) {
    INFO(number);
    CHECK((row.restart == "yes") == again.contains(number));
  }
}
