// The table of codes against the sources, the cases in rules/ and the tests.
#include "config/report/codes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "catch.h"
#include "config/read/read.h"
#include "config/yaml/tree.h"
#include "plan/rules/check.h"
#include "sample.h"
#include "thorough.h"

using namespace trainctl;

namespace {

std::string whole(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool is_table(const std::string& name) {
  return name.starts_with("codes") || name == "upstream_keys.cpp" || name == "foreign.cpp" ||
         name == "standing.cpp" || name == "presets.cpp";
}

/// The text of every source in which findings are made.
std::string all_sources() {
  std::string text;
  for (const char* folder :
       {"lib/config", "lib/plan", "lib/formats", "lib/engine", "lib/run", "apps/trainctl"}) {
    const std::filesystem::path root = std::filesystem::path(TRAINCTL_SOURCE_DIR) / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      const std::string name = entry.path().filename().string();
      const std::string kind = entry.path().extension().string();
      if ((kind == ".cpp" || kind == ".h") && !is_table(name)) text += whole(entry.path());
      if (name == "standing.cpp") text += "\"not-built\" \"no-effect\"";
    }
  }
  return text;
}

/// Words at the places in a source text where the code of a finding is expected.
std::set<std::string> codes_in(const std::string& text) {
  const std::string code = "\"([a-z][a-z0-9]*(-[a-z0-9]+)*)\"";
  const std::string places[] = {
      "Severity::[a-z]+,\\s*",
      "\\b[Ss]everity,\\s*",
      "\\.code = ",
      "\\b(error|warning|refuse_tensor)\\(\\s*",
      "\\b(report|refuse|complain)\\(\\{\\s*",
      "\\b(Problem|Wrong|Finding|SyntaxError)( \\w+)?\\{\\s*",
      "\\breturn \\{\\s*",
  };
  std::set<std::string> found;
  for (const std::string& place : places) {
    const std::regex pattern(place + code + "\\s*,");
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end;
         ++match) {
      const std::string word = match->str(match->size() - 2);
      // A plain word after `return {` may be any text.
      if (place.find("return") == std::string::npos || word.find('-') != std::string::npos) {
        found.insert(word);
      }
    }
  }
  return found;
}

Diagnostic only(const Diagnostics& diagnostics) {
  REQUIRE(diagnostics.list().size() == 1);
  return diagnostics.list().front();
}

Diagnostic only(const ReadResult& result) { return only(result.diagnostics); }

template <class Change>
Diagnostic finding(Change change) {
  Config config = small_config();
  change(config);
  const SourceMap sources;
  Diagnostics diagnostics;
  Check check(sources, diagnostics);
  const Site site = site_of(1);
  check_rules(Facts(config, site), check);
  return only(diagnostics);
}

/// The codes of the cases in rules/.
std::set<std::string> codes_of_cases() {
  std::set<std::string> codes;
  for (const auto& entry : std::filesystem::directory_iterator(TRAINCTL_TEST_DIR "/rules")) {
    std::istringstream lines(whole(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# ")) codes.insert(line.substr(2));
    }
  }
  return codes;
}

/// Codes whose exact text is held by a test of C++, and where.
const std::multimap<std::string, std::string> tested_elsewhere = {
    {"data-weights", "plan/codes_test.cpp"},
    {"cluster-software", "run/calibration_test.cpp"},
    {"device", "plan/codes_test.cpp"},
    {"device-memory", "plan/estimate_test.cpp"},
    {"device-queues", "plan/estimate_test.cpp"},
    {"encoding", "plan/codes_test.cpp"},
    {"include-refused", "plan/codes_test.cpp"},
    {"include-depth", "plan/codes_test.cpp"},
    {"include-size", "plan/codes_test.cpp"},
    {"length-differs", "cli/lengths_test.cpp"},
    {"model-differs", "config/hugging_face_test.cpp"},
    {"model-directory", "config/hugging_face_test.cpp"},
    {"model-twice", "config/hugging_face_test.cpp"},
    {"recompute-memory", "plan/recompute_test.cpp"},
    {"too-deep", "plan/codes_test.cpp"},
    {"too-large", "plan/codes_test.cpp"},
    {"too-many", "plan/codes_test.cpp"},
    {"unfinished-gradients", "plan/plan_test.cpp"},
    {"unreadable", "cli/explain_test.cpp"},
    {"layout-stale", "cli/auto_parallel_test.cpp"},
    {"search-default-device", "plan/search_seconds_test.cpp"},
    {"search-load-file", "cli/auto_parallel_test.cpp"},
    {"search-operator", "plan/search_layout_test.cpp"},
    {"search-space-empty", "plan/search_seconds_test.cpp"},
    {"search-space-empty", "run/layout_search_test.cpp"},
    {"short-run", "cli/lengths_test.cpp"},
    {"strategy-file", "cli/strategy_test.cpp"},
    {"strategy-differs", "formats/strategy_file_test.cpp"},
    {"strategy-operators", "formats/strategy_decides_test.cpp"},
    {"strategy-unknown", "formats/strategy_file_test.cpp"},
};

}  // namespace

TEST_CASE("every code in the sources is explained, and every explanation is of a code", "[codes]") {
  if (brief()) return;  // the sources are the same in every build, and a regular expression is slow
  const std::string sources = all_sources();
  const std::set<std::string> used = codes_in(sources);
  CHECK(used.size() + 10 >= diagnostic_codes().size());  // the patterns see nearly all of them
  for (const std::string& code : used) {
    INFO(code);
    CHECK(find_code(code) != nullptr);
  }
  for (const CodeNote& note : diagnostic_codes()) {
    INFO(note.code);
    CHECK(sources.find("\"" + note.code + "\"") != std::string::npos);
  }
}

TEST_CASE("every code has a test with its exact text", "[codes]") {
  std::set<std::string> tested = codes_of_cases();
  for (const auto& [code, file] : tested_elsewhere) {
    const std::filesystem::path tests = std::filesystem::path(TRAINCTL_TEST_DIR).parent_path();
    INFO(code << " in " << file);
    CHECK(whole(tests / file).find("\"" + code + "\"") != std::string::npos);
    tested.insert(code);
  }
  std::set<std::string> known;
  for (const CodeNote& note : diagnostic_codes()) known.emplace(note.code);
  CHECK(tested == known);
}

TEST_CASE("explanations are complete and in order", "[codes]") {
  const auto& notes = diagnostic_codes();
  CHECK(std::is_sorted(notes.begin(), notes.end(),
                       [](const CodeNote& a, const CodeNote& b) { return a.code < b.code; }));
  std::set<std::string_view> codes;
  for (const CodeNote& note : notes) {
    INFO(note.code);
    CHECK(codes.insert(note.code).second);
    CHECK_FALSE(note.summary.empty());
    CHECK_FALSE(note.summary.ends_with('.'));
    CHECK(note.rule.ends_with('.'));
    CHECK(note.fails.empty() == note.passes.empty());
  }
  CHECK(find_code("no-such-code") == nullptr);
}

TEST_CASE("rules that no YAML can break", "[codes]") {
  const Diagnostic weights = finding([](Config& c) { c.data.train[0].weight = 0; });
  CHECK(weights.code == "data-weights");
  CHECK(weights.path == "data.train");
  CHECK(weights.message == "the weights of all sources add up to 0");
  CHECK(weights.help == "leave weight out to give each source a weight of 1");
  const Diagnostic device = finding([](Config& c) { c.parallel.device = "tpu"; });
  CHECK(device.code == "device");
  CHECK(device.message == "device must be auto, cpu or cuda, found \"tpu\"");
  CHECK(device.help == "set device to auto, cpu or cuda");
}

TEST_CASE("texts that do not hold a configuration", "[codes]") {
  const Diagnostic encoding = only(read_config_text("model: \xff\n", "t.yaml", {}));
  CHECK(encoding.code == "encoding");
  CHECK(encoding.message == "the byte 0xFF is not valid UTF-8");
  CHECK(encoding.help == "save the file as UTF-8");
  const Diagnostic deep = only(
      read_config_text("log: " + std::string(2000, '[') + std::string(2000, ']'), "t.yaml", {}));
  CHECK(deep.code == "too-deep");
  CHECK(deep.message == "values are nested more than 100 levels deep");
  CHECK(deep.help == "a configuration needs no more than four");
  const Diagnostic large = only(read_config_text(std::string((1 << 20) + 1, '#'), "t.yaml", {}));
  CHECK(large.code == "too-large");
  CHECK(large.message == "a configuration must be at most 1 MiB");
  CHECK(large.help == "is this the right file?");
  Diagnostics many;
  for (int i = 0; i < 5; ++i) many.add({});
  many.keep_first(2);
  CHECK(many.list().back().code == "too-many");
  CHECK(many.list().back().message == "3 more findings are not shown");
}

TEST_CASE("files that cannot be included", "[codes]") {
  const Diagnostic refused = only(read_config_text("include: a.yaml\n", "t.yaml", {}));
  CHECK(refused.code == "include-refused");
  CHECK(refused.message == "include is supported only in files");
  Surroundings around;
  around.load = [](const std::string& path) {
    return Surroundings::Loaded{"include: " + path + "x\n", ""};
  };
  const Diagnostic depth = only(read_config_text("include: a\n", "t.yaml", {}, around));
  CHECK(depth.code == "include-depth");
  CHECK(depth.message == "files include each other more than 16 levels deep");
  around.load = [](const std::string&) {
    return Surroundings::Loaded{std::string(1 << 20, '#'), ""};
  };
  const Diagnostic size = only(read_config_text("include: a\n", "t.yaml", {}, around));
  CHECK(size.code == "include-size");
  CHECK(size.message == "together with a the files are larger than 1 MiB");
}
