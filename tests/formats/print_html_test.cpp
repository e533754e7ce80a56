// The page without a browser: whole, self-contained, and folded for large worlds. tests/cli opens
// it in one.
#include <regex>

#include "catch.h"
#include "formats/html/html_parts.h"
#include "formats/print/print.h"
#include "plan/sample.h"

using namespace trainctl;

namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

Config staged(std::int64_t tp, std::int64_t pp, std::int64_t batch) {
  Config config = small_config();
  config.parallel.tensor_parallel = tp;
  config.parallel.pipeline_stages = pp;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = batch;
  return config;
}

}  // namespace

TEST_CASE("the page needs nothing from outside and closes what it opens", "[print]") {
  const Config config = staged(2, 2, 8);
  const Plan plan = plan_of(config, 8);
  REQUIRE(plan.stages.size() == 2);
  const std::string page = print_html({.plan = plan, .config = &config}, "a <b> & \"c\"");
  CHECK(page.find("http") == std::string::npos);
  CHECK(page.find("src=") == std::string::npos);
  CHECK(page.find("<h1>a &lt;b&gt; &amp; &quot;c&quot;</h1>") != std::string::npos);
  for (const char* tag : {"section", "svg", "table", "script", "rect", "text", "details", "div"}) {
    INFO(tag);
    CHECK(count_of(page, "<" + std::string(tag)) == count_of(page, "</" + std::string(tag) + ">"));
  }
  CHECK(count_of(page, "class=\"rank\"") == 8);
  CHECK(count_of(page, "<rect class=\"f\"") + count_of(page, "<rect class=\"f odd\"") == 2 * 4);
  CHECK(page.find("stage 1, forward, micro-batch 3: ") != std::string::npos);
}

TEST_CASE("a large world is folded", "[print]") {
  const Config config = staged(4, 4, 2048);
  const Plan plan = plan_of(config, 8192);
  REQUIRE(plan.stages.size() == 4);
  const std::string page = print_html({.plan = plan, .config = &config}, "large");
  CHECK(count_of(page, "class=\"rank\"") == 512);
  CHECK(page.find("The first 128 ranks of each stage are drawn, 512 of 8,192.") !=
        std::string::npos);
  CHECK(page.size() < 1'000'000);
}

TEST_CASE("a long schedule is cut", "[print]") {
  const Config config = staged(1, 4, 1500);
  const Plan plan = plan_of(config, 4);
  REQUIRE(plan.stages.size() == 4);
  const std::string page = print_html({.plan = plan, .config = &config}, "long");
  CHECK(page.find(" units are drawn.") != std::string::npos);
  CHECK(count_of(page, "<rect") < 8000);
}

TEST_CASE("numbers for drawings are short", "[print]") {
  CHECK(svg_number(0) == "0");
  CHECK(svg_number(12.5) == "12.5");
  CHECK(svg_number(1.0 / 3) == "0.33");
  CHECK(svg_number(100) == "100");
}
