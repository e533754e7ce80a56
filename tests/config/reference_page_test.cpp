// docs/configuration.md is made by `trainctl schema --format markdown`; it must be what the program
// says today.
#include <fstream>
#include <iterator>

#include "catch.h"
#include "config/explain/reference.h"

TEST_CASE("the committed reference page is up to date") {
  std::ifstream page(std::string(TRAINCTL_SOURCE_DIR) + "/docs/configuration.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  std::string expected = trainctl::reference_markdown();
  while (expected.ends_with('\n')) expected.pop_back();
  expected += '\n';
  INFO("make it again: trainctl schema --format markdown > docs/configuration.md");
  CHECK(text == expected);
}
