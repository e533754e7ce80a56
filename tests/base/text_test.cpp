#include "base/text.h"

#include "catch.h"

using namespace trainctl;

TEST_CASE("rows of a table") {
  CHECK(table_rows("# comment\na 1|\n  2\n  3\n   \n\nb\n") ==
        std::vector<std::string>{"a 1|2 3", "b"});
  CHECK(table_rows("  a\nb") == std::vector<std::string>{"a", "b"});
  CHECK(table_rows(" \n").empty());
}

TEST_CASE("joined texts") {
  CHECK(joined(std::vector<std::string>{"", "a", ""}, ", ") == ", a, ");
  CHECK(joined(std::vector<std::string>{}, ", ").empty());
}
