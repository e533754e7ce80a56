// Every diagnostic: its code, severity and path, and its text once for each code. The files in
// rules/ hold one case after another:
//
//   # world-size                          the code that is expected
//   ranks 8                               default: 1
//   threads                               the ranks are threads of one process
//   set parallel.tensor_parallel=3        --set, any number of times
//   + log: {every: 5}                     a line added to the small good configuration, or
//   | train:                              a line of a whole configuration
//   file base.yaml                        the `|` lines below are that file's
//   error parallel.tensor_parallel        severity and path of the only finding
//   message ...                           its text and help: in the first case of a code only
//   help ...
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "catch.h"
#include "config/read/read.h"
#include "config/report/codes.h"
#include "config/yaml/tree.h"
#include "plan/plan.h"
#include "plan/rules/check.h"
#include "sample.h"

using namespace trainctl;

namespace {

const std::string good_text =
    "model: {num_layers: 4, hidden_size: 128, num_attention_heads: 4, seq_length: 64, "
    "vocab_size: 256}\n"
    "data: {train: text}\n"
    "train: {steps: 2000, global_batch_size: 48}\n"
    "lr_schedule: {max_lr: 1.0e-3}\n";

struct Case {
  std::string where;  // "mesh.txt:12"
  std::string code;
  std::int64_t ranks = 1;
  bool threads = false;
  std::vector<std::string> set;
  std::string text;
  std::string more;
  std::map<std::string, std::string> files;
  std::string severity, path, message, help;
};

/// Takes one line of a case; false where it has no meaning.
bool take_line(Case& now, const std::string& line, std::string& file) {
  const auto rest = [&](std::string_view word) -> std::optional<std::string> {
    if (!line.starts_with(word)) return std::nullopt;
    return line.substr(word.size());
  };
  if (const auto ranks = rest("ranks "))
    now.ranks = std::stoll(*ranks);
  else if (line == "threads")
    now.threads = true;
  else if (const auto option = rest("set "))
    now.set.push_back(*option);
  else if (const auto name = rest("file "))
    file = *name;
  else if (const auto own = rest("| "))
    (file.empty() ? now.text : now.files[file]) += *own + "\n";
  else if (const auto added = rest("+ "))
    now.more += *added + "\n";
  else if (const auto error = rest("error "))
    now.severity = "error", now.path = *error;
  else if (const auto warning = rest("warning "))
    now.severity = "warning", now.path = *warning;
  else if (const auto message = rest("message "))
    now.message = *message;
  else if (const auto help = rest("help "))
    now.help = *help;
  else
    return line.empty();
  return true;
}

std::vector<Case> cases_of(const std::string& name) {
  std::ifstream stream(TRAINCTL_TEST_DIR "/rules/" + name);
  REQUIRE(stream.good());
  std::vector<Case> cases;
  std::string file;
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    INFO(name << ":" << number << ": " << line);
    if (line.starts_with("# ")) {
      Case& made = cases.emplace_back();
      made.where = name + ":" + std::to_string(number);
      made.code = line.substr(2);
      file.clear();
    } else {
      REQUIRE((line.empty() || !cases.empty()));
      if (!line.empty()) REQUIRE(take_line(cases.back(), line, file));
    }
  }
  return cases;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> cases;
    for (const char* name :
         {"mesh.txt", "options.txt", "pipeline.txt", "text.txt", "training.txt"}) {
      for (Case& one : cases_of(name)) cases.push_back(std::move(one));
    }
    return cases;
  }();
  return all;
}

std::vector<Diagnostic> findings(const Case& given) {
  Surroundings around;
  around.load = [&](const std::string& path) {
    Surroundings::Loaded loaded;
    const auto file = given.files.find(path);
    if (file == given.files.end())
      loaded.why = "no such file";
    else
      loaded.text = file->second;
    return loaded;
  };
  around.variable = [](const std::string&) { return std::nullopt; };
  const std::string text = given.text.empty() ? good_text + given.more : given.text;
  ReadResult read = read_config_text(text, "t.yaml", given.set, around);
  Check check(read.sources, read.diagnostics);
  Site site = site_of(given.ranks);
  site.ranks_are_threads = given.threads;
  if (read.complete) check_rules(Facts(read.config, site), check);
  return read.diagnostics.list();
}

}  // namespace

TEST_CASE("each rule says what is wrong, word for word once for each code", "[rules]") {
  std::set<std::string> told;
  for (const Case& given : all_cases()) {
    const std::vector<Diagnostic> found = findings(given);
    INFO(given.where << " " << given.code);
    for (const Diagnostic& one : found) UNSCOPED_INFO(one.code << ": " << one.message);
    REQUIRE(found.size() == 1);
    CHECK(found[0].code == given.code);
    CHECK((found[0].severity == Severity::error ? "error" : "warning") == given.severity);
    CHECK(found[0].path == given.path);
    const bool first = told.insert(given.code).second;
    CHECK(given.message.empty() != first);
    if (first) CHECK(found[0].message == given.message);
    if (first) CHECK(found[0].help == given.help);
    CHECK_FALSE(found[0].message.ends_with("."));
    const bool across = given.where.find("text.txt") == std::string::npos;
    if (across && given.severity == "error") CHECK_FALSE(found[0].help.empty());
    CHECK(find_code(found[0].code) != nullptr);
  }
}
