// Scans the project's prose for turns of phrase that are hard to read (phrases.txt), and shows that
// each of them is found.
#include <algorithm>
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

namespace {

/// Paths in backquotes that start with a folder of the source tree. "x" stands for a name of the
/// reader's own, and what follows a "*" is not looked at.
std::vector<std::string> named_paths(const std::string& text) {
  static const std::regex path(
      "`((lib|apps|tests|scripts|configs|docs|third_party)/[A-Za-z0-9_./*-]+)`");
  static const std::regex own_name("(^|[/_])x([_./]|$)");
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), path), end; at != end; ++at) {
    const std::string name = (*at)[1];
    if (!std::regex_search(name, own_name)) found.push_back(name);
  }
  return found;
}

bool is_there(const fs::path& root, const std::string& name) {
  const std::size_t star = name.find('*');
  if (star == std::string::npos) return fs::exists(root / name);
  const fs::path begin = root / name.substr(0, star);
  const auto names = fs::directory_iterator(begin.parent_path());
  return std::any_of(fs::begin(names), fs::end(names), [&](const fs::directory_entry& entry) {
    return entry.path().filename().string().starts_with(begin.filename().string());
  });
}

}  // namespace

TEST_CASE("files that the documents name are there") {
  const fs::path root = TRAINCTL_SOURCE_DIR;
  CHECK(named_paths("see `lib/a.h`, `lib/ops/x.h` and `lib/b_*.cpp`") ==
        std::vector<std::string>{"lib/a.h", "lib/b_*.cpp"});
  CHECK_FALSE(is_there(root, "lib/a.h"));
  std::vector<fs::path> pages = {root / "README.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  std::size_t checked = 0;
  for (const fs::path& page : pages) {
    std::ifstream file(page);
    std::ostringstream text;
    text << file.rdbuf();
    for (const std::string& name : named_paths(text.str())) {
      INFO(page.filename().string() << " names " << name);
      CHECK(is_there(root, name));
      ++checked;
    }
  }
  CHECK(checked > 200);
}
