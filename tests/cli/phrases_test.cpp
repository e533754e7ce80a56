// Scans the project's prose for turns of phrase that are hard to read (phrases.txt), and shows that
// each of them is found.
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "catch.h"

namespace {

namespace fs = std::filesystem;

struct Phrase {
  std::string pattern;
  std::string example;
  std::string plain;
};

std::vector<Phrase> read_phrases() {
  std::ifstream file(std::string(TRAINCTL_TEST_DIR) + "/phrases.txt");
  static const std::regex row("(.*?)\\s{2,}(.*) => (.*)");
  std::vector<Phrase> phrases;
  for (std::string line; std::getline(file, line);) {
    std::smatch parts;
    if (line.starts_with('#')) continue;
    INFO(line);
    REQUIRE(std::regex_match(line, parts, row));
    phrases.push_back({parts[1], parts[2], parts[3]});
  }
  return phrases;
}

std::regex expression(const std::string& pattern) {
  return std::regex("\\b(?:" + pattern + ")\\b", std::regex::icase | std::regex::optimize);
}

/// All phrases in one expression.
std::regex all_of(const std::vector<Phrase>& phrases) {
  std::string pattern;
  for (const Phrase& phrase : phrases) pattern += (pattern.empty() ? "" : "|") + phrase.pattern;
  return expression(pattern);
}

/// A line without indentation and comment marks, so that a phrase is found across a line's end.
std::string prose_of(const std::string& line) {
  const std::size_t start = line.find_first_not_of(" \t/#*>\"");
  std::string text = start == std::string::npos ? "" : line.substr(start);
  while (!text.empty() && std::string(" \t\"").find(text.back()) != std::string::npos) {
    text.pop_back();
  }
  return text;
}

/// "path:line: phrase" of each hit.
std::vector<std::string> find_phrases(const std::string& path, std::istream& text,
                                      const std::regex& phrases) {
  std::vector<std::string> found;
  std::string line, next;
  bool more = static_cast<bool>(std::getline(text, line));
  line = prose_of(line);
  for (int number = 1; more; ++number, line = next) {
    more = static_cast<bool>(std::getline(text, next));
    next = more ? prose_of(next) : "";
    const std::string both = line + " " + next;
    std::smatch hit;
    if (std::regex_search(both, hit, phrases) &&
        hit.position() < static_cast<std::ptrdiff_t>(line.size())) {
      found.push_back(path + ":" + std::to_string(number) + ": " + hit.str());
    }
  }
  return found;
}

bool is_prose(const fs::path& path) {
  static const std::set<std::string> extensions = {".md", ".h",    ".cpp", ".cu", ".cuh",
                                                   ".py", ".yaml", ".sh",  ".txt"};
  return extensions.contains(path.extension().string()) && path.filename() != "phrases.txt" &&
         path.filename() != "phrases_test.cpp";
}

}  // namespace

TEST_CASE("each phrase is found in its example and not in the plain form") {
  const std::vector<Phrase> phrases = read_phrases();
  REQUIRE(phrases.size() > 20);
  for (const Phrase& phrase : phrases) {
    INFO(phrase.pattern);
    CHECK(std::regex_search(phrase.example, expression(phrase.pattern)));
    CHECK_FALSE(std::regex_search(phrase.plain, all_of(phrases)));
  }
}

TEST_CASE("a phrase is found across the end of a line") {
  std::istringstream text("/// one\n/// two is\n/// due here\n");
  const auto found = find_phrases("lib/a.h", text, all_of(read_phrases()));
  CHECK(found == std::vector<std::string>{"lib/a.h:2: is due"});
}

TEST_CASE("documents, sources, tests, scripts and examples are written in plain English") {
  const std::regex phrases = all_of(read_phrases());
  const fs::path root = TRAINCTL_SOURCE_DIR;
  std::vector<fs::path> files = {root / "README.md", root / "CMakeLists.txt",
                                 root / "third_party/README.md"};
  for (const char* folder : {"docs", "scripts", "configs", "apps", "lib", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.is_regular_file() && is_prose(entry.path())) files.push_back(entry.path());
    }
  }
  CHECK(files.size() > 500);
  for (const fs::path& path : files) {
    std::ifstream text(path);
    REQUIRE(text);
    for (const auto& hit : find_phrases(fs::relative(path, root).generic_string(), text, phrases)) {
      UNSCOPED_INFO(hit);
      CHECK(hit.empty());
    }
  }
}
