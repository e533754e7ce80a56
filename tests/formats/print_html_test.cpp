// The page without a browser: whole, self-contained, and folded for large worlds. tests/cli opens
// it in one.
#include <regex>

#include "catch.h"
#include "formats/print/print.h"
#include "formats/print/text.h"
#include "formats/web/plan_page.h"
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
  const std::string page =
      print_html({.plan = plan, .config = &config}, {.title = "a <b> & \"c\"",
                                                     .file = "d.yaml",
                                                     .command = "trainctl plan 'd <'",
                                                     .sets = {"train.steps=7"}});
  CHECK(count_of(page, "http") == 1);  // the name of SVG's elements
  CHECK(page.find("http://www.w3.org/2000/svg") != std::string::npos);
  CHECK(page.find("src=") == std::string::npos);
  CHECK(page.find("<h1>a &lt;b&gt; &amp; &quot;c&quot;</h1>") != std::string::npos);
  CHECK(page.find("<pre>trainctl plan 'd &lt;'</pre>") != std::string::npos);
  CHECK(page.find("<code>train.steps=7</code>") != std::string::npos);
  for (const char* tag : {"section", "table", "script", "details", "div", "ul", "span", "pre"}) {
    INFO(tag);
    CHECK(count_of(page, "<" + std::string(tag) + ">") +
              count_of(page, "<" + std::string(tag) + " ") ==
          count_of(page, "</" + std::string(tag) + ">"));
  }
  CHECK(page.find("\"stages\": [[[0, ") != std::string::npos);
  CHECK(page.find("\"ranks\": [0, 1, 2, 3, 4, 5, 6, 7]") != std::string::npos);
}

TEST_CASE("every segment of memory has its figure, and the plan fits or not", "[print]") {
  const Config config = staged(1, 2, 8);
  const Plan plan = plan_of(config, 2);
  PrintInput input{.plan = plan, .config = &config};
  const std::string usual = memory_html(input);
  CHECK(usual.find("fits in 1 GiB, ") != std::string::npos);
  CHECK(usual.find("free (the least usual size that does)") != std::string::npos);
  std::size_t segments = 0;
  for (const StagePlan& stage : plan.stages) {
    for (const auto& row : memory_rows(stage.memory)) segments += row.second > 0 ? 1 : 0;
  }
  const std::regex figure("<span class=\"c[0-8]\"[^>]*>[0-9.]+[BKMG]</span>");
  CHECK(std::distance(std::sregex_iterator(usual.begin(), usual.end(), figure), {}) ==
        static_cast<std::ptrdiff_t>(segments));
  input.memory_limit = 0.001;
  CHECK(memory_html(input).find("does not fit in 0.001 GiB: ") != std::string::npos);
  CHECK(memory_html(input).find("too much (--memory-limit)") != std::string::npos);
  CHECK(memory_html(input).find(", over the limit") != std::string::npos);
  input.memory_limit = 1e30;
  CHECK(memory_html(input).find("fits in 1e+30 GiB") != std::string::npos);
}

TEST_CASE("communication has totals by kind, with the rows folded", "[print]") {
  const Config config = staged(2, 2, 8);
  const std::string text = communication_html(plan_of(config, 8));
  for (const char* kind : {"collectives in layers", "gradient sums", "messages of stages"}) {
    INFO(kind);
    CHECK(text.find("<td>" + std::string(kind) + "</td>") != std::string::npos);
  }
  CHECK(text.find("<td>parameter gathers</td>") == std::string::npos);  // none in this plan
  CHECK(count_of(text, "<details>") == 2);
  CHECK(communication_html(plan_of(small_config())).find("one rank.") != std::string::npos);
}

TEST_CASE("a large world is folded", "[print]") {
  const Config config = staged(4, 4, 2048);
  const Plan plan = plan_of(config, 8192);
  REQUIRE(plan.stages.size() == 4);
  const std::string page =
      print_html({.plan = plan, .config = &config}, {"large", "large.yaml", "", {}});
  CHECK(page.find("\"lengths\": [128, 128, 128, 128]") != std::string::npos);
  CHECK(page.find("The first 128 ranks of each stage are drawn, 512 of 8,192.") !=
        std::string::npos);
  CHECK(page.size() < 1'000'000);
}

TEST_CASE("a long schedule is cut", "[print]") {
  const Config config = staged(1, 4, 4000);
  const Plan plan = plan_of(config, 4);
  REQUIRE(plan.stages.size() == 4);
  const std::string text = schedule_html(plan, make_timeline(plan));
  CHECK(text.find(" units are drawn.") != std::string::npos);
  CHECK(text.size() < 1'000'000);
}
