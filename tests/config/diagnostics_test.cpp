#include "catch.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

Diagnostic at(int line, int column, const std::string& code = "x") {
  return {
      Severity::error, code, "p", "m", "", {Place::Origin::file, "f", line, column, column + 1}};
}

}  // namespace

TEST_CASE("places say where a value came from") {
  CHECK(Place{Place::Origin::file, "a.yaml", 3, 14, 15}.to_string() == "a.yaml:3:14");
  CHECK(Place{Place::Origin::file, "a.yaml", 0, 0, 0}.to_string() == "a.yaml");
  CHECK(Place{Place::Origin::set_option, "a.b=c", 1, 1, 2}.to_string() == "--set a.b=c");
  CHECK(Place{Place::Origin::preset, "gpt2-124m", 0, 0, 0}.to_string() == "preset gpt2-124m");
  CHECK(Place{}.to_string() == "default");
}

TEST_CASE("a value that is not given has the place of its section") {
  const ReadResult result = read(good_text);
  CHECK(result.sources.find("model.num_layers").to_string() == "t.yaml:1:21");
  CHECK(result.sources.find("model.kv_channels").to_string() == "t.yaml:1:1");
  CHECK(result.sources.find("model.rope_scaling.factor").to_string() == "t.yaml:1:1");
  CHECK(result.sources.find("log.every").to_string() == "default");
  CHECK(result.sources.find("").to_string() == "default");
}

TEST_CASE("messages are sorted by place, repeats dropped") {
  Diagnostics diagnostics;
  diagnostics.add(
      {Severity::error, "s", "p", "m", "", {Place::Origin::set_option, "a=b", 1, 1, 2}});
  diagnostics.add(at(2, 5));
  diagnostics.add(at(2, 5, "other"));
  diagnostics.add(at(1, 9));
  diagnostics.add(at(2, 5));
  diagnostics.sort();
  REQUIRE(diagnostics.list().size() == 4);
  CHECK(diagnostics.list()[0].place.line == 1);
  CHECK(diagnostics.list()[1].code == "x");
  CHECK(diagnostics.list()[2].code == "other");
  CHECK(diagnostics.list()[3].code == "s");
}

TEST_CASE("only errors make a configuration invalid") {
  Diagnostics diagnostics;
  CHECK_FALSE(diagnostics.has_errors());
  Diagnostic warning = at(1, 1);
  warning.severity = Severity::warning;
  diagnostics.add(warning);
  CHECK_FALSE(diagnostics.has_errors());
  diagnostics.add(at(1, 1));
  CHECK(diagnostics.has_errors());
}

TEST_CASE("the nearest word is within a third of the letters") {
  const std::vector<std::string> words{"steps", "seed", "num_layers", "num_query_groups"};
  CHECK(nearest("stps", words) == "steps");
  CHECK(nearest("setps", words) == "steps");
  CHECK(nearest("num_layer", words) == "num_layers");
  CHECK(nearest("number_layers", words) == "num_layers");
  CHECK(nearest("sxyps", words) == "");
  CHECK(nearest("steps_total", words) == "steps");
  CHECK(nearest("keep_last", {"keep", "keep_best", "keep_every"}) == "keep");
  CHECK(nearest("keep_bst", {"keep", "keep_best", "keep_every"}) == "keep_best");
  CHECK(nearest("", words) == "");
  CHECK(nearest("layers", words) == "");
  CHECK(nearest(std::string(10'000, 'a'), words) == "");
}

TEST_CASE("text shows the line, the place and the suggestion") {
  const ReadResult result = read(good_text + "log: {evry: 5}\nmoe: {use_gmm: true}\n");
  CHECK(render_text(result.diagnostics, false) ==
        "t.yaml:5:7: error[unknown-key]: log.evry: unknown key \"evry\" in log\n"
        "   5 | log: {evry: 5}\n"
        "     |       ^~~~\n"
        "     help: did you mean every?\n"
        "t.yaml:6:7: error[not-built]: moe.use_gmm: not built yet: use_gmm\n"
        "   6 | moe: {use_gmm: true}\n"
        "     |       ^~~~~~~\n"
        "     help: remove it; the value false is accepted\n"
        "2 errors\n"
        "`trainctl explain unknown-key` explains this error\n");
  CHECK(contains(render_text(result.diagnostics, true), "\x1b[1;31merror"));
  CHECK(render_text(Diagnostics{}, true).empty());
}

TEST_CASE("text counts errors and warnings") {
  Diagnostics diagnostics;
  diagnostics.add(at(1, 1));
  diagnostics.add(at(2, 1));
  Diagnostic warning = at(3, 1);
  warning.severity = Severity::warning;
  diagnostics.add(warning);
  CHECK(contains(render_text(diagnostics, false), "\n2 errors, 1 warning\n"));
}

TEST_CASE("columns count characters, and the caret stands under them") {
  const ReadResult result = read(good_text + "output: {dir: \"é\", dri: 1}\n");
  CHECK(found(result) == std::vector<std::string>{"unknown-key output.dri 5:20"});
  CHECK(contains(render_text(result.diagnostics, false),
                 "   5 | output: {dir: \"é\", dri: 1}\n     |                    ^~~\n"));
}

TEST_CASE("long lines are cut around the place") {
  const std::string padding(500, 'x');
  const ReadResult result =
      read(good_text + "output: {dir: " + padding + ", dri: 1, cache: " + padding + "}\n");
  const std::string text = render_text(result.diagnostics, false);
  CHECK(contains(text, "   5 | ...xxx"));
  CHECK(contains(text, "xxx, dri: 1, cache: xxx"));
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    CHECK(end - start < 200);
    start = end + 1;
  }
}

TEST_CASE("the place of --set shows its argument") {
  const ReadResult result = read(good_text, {"train.stps=5"});
  CHECK(render_text(result.diagnostics, false) ==
        "--set train.stps=5: error[unknown-key]: train.stps: unknown key \"stps\" in train\n"
        "     | train.stps=5\n"
        "     |       ^~~~\n"
        "     help: did you mean steps?\n"
        "1 error\n"
        "`trainctl explain unknown-key` explains this error\n");
}

}  // namespace trainctl::test
