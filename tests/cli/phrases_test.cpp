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

/// Where a row of phrases.txt holds.
enum class Reach {
  lines,    // whole lines, code too
  prose,    // comments, pages outside code, strings that have a space
  opening,  // the first words of a comment, case as written: a pattern that begins with ^
};

struct Phrase {
  std::string pattern;
  std::string example;
  std::string plain;
  Reach reach = Reach::lines;
  std::regex expression;
  std::vector<std::string> anchors;  // in lower case; each match has one of them
};

std::string lower_case(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
}

/// The alternatives of a pattern, without the group around them if there is one.
std::vector<std::string> alternatives(const std::string& pattern) {
  const bool one_group = pattern.starts_with('(') && pattern.find(')') == pattern.size() - 1;
  const std::string inner = one_group ? pattern.substr(1, pattern.size() - 2) : pattern;
  std::vector<std::string> all(1);
  int depth = 0;
  for (const char letter : inner) {
    depth += letter == '(' ? 1 : letter == ')' ? -1 : 0;
    if (letter == '|' && depth == 0) {
      all.emplace_back();
    } else {
      all.back() += letter;
    }
  }
  return all;
}

/// The longest text that every match of an expression without alternatives outside groups has.
std::string longest_literal(const std::string& expression) {
  std::string best, run;
  int depth = 0;
  const auto end_run = [&] {
    if (run.size() > best.size()) best = run;
    run.clear();
  };
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char letter = expression[i];
    if (std::string("?*{").find(letter) != std::string::npos && !run.empty()) run.pop_back();
    const bool special = std::string("()[]{}?*+.^$\\").find(letter) != std::string::npos;
    if (letter == '(' || letter == '[' || letter == '{') ++depth;
    if (letter == ')' || letter == ']' || letter == '}') --depth;
    if (special) end_run();
    if (letter == '\\') ++i;  // a class, such as \w
    if (!special && depth == 0) run += letter;
  }
  end_run();
  return lower_case(best);
}

Phrase phrase_of(const std::string& pattern, const std::string& example, const std::string& plain,
                 Reach reach) {
  Phrase phrase{pattern, example, plain, reach, {}, {}};
  if (reach == Reach::opening) {
    phrase.expression = std::regex(pattern + "\\b");
    return phrase;
  }
  phrase.expression = std::regex("\\b(?:" + pattern + ")\\b", std::regex::icase);
  for (const std::string& one : alternatives(pattern)) {
    phrase.anchors.push_back(longest_literal(one));
  }
  return phrase;
}

std::vector<Phrase> read_phrases() {
  std::ifstream file(std::string(TRAINCTL_TEST_DIR) + "/phrases.txt");
  static const std::regex row("(.*?)\\s{2,}(.*) => (.*)");
  std::vector<Phrase> phrases;
  Reach reach = Reach::lines;
  for (std::string line; std::getline(file, line);) {
    std::smatch parts;
    if (line == "[prose]") reach = Reach::prose;
    if (line.starts_with('#') || line.starts_with('[')) continue;
    INFO(line);
    REQUIRE(std::regex_match(line, parts, row));
    phrases.push_back(
        phrase_of(parts[1], parts[2], parts[3], line.starts_with('^') ? Reach::opening : reach));
  }
  return phrases;
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

/// Lines of text, and all of them in lower case, each with a space behind it.
struct Prose {
  explicit Prose(std::vector<std::string> text) : lines(std::move(text)) {
    for (const std::string& line : lines) {
      begins.push_back(joined.size());
      joined += lower_case(line) + " ";
    }
  }
  std::size_t line_at(std::size_t place) const {
    const auto after = std::upper_bound(begins.begin(), begins.end(), place);
    return static_cast<std::size_t>(after - begins.begin()) - 1;
  }

  std::vector<std::string> lines;
  std::vector<std::size_t> begins;  // of each line in `joined`
  std::string joined;
};

/// A line of code, cut into its comment and its strings.
struct CodeLine {
  std::string code, comment, strings;  // strings: those that have a space, with " | " between
};

/// `mark` begins a comment: "//" or "#".
CodeLine cut_code(const std::string& line, const std::string& mark) {
  CodeLine cut;
  std::size_t i = 0;
  while (i < line.size() && line.compare(i, mark.size(), mark) != 0) {
    const bool letter = line[i] == '\'' && i + 2 < line.size() && line[i + 2] == '\'';
    if (letter) i += 3;  // '"'
    if (letter || line[i] != '"') {
      if (!letter) cut.code += line[i++];
      continue;
    }
    std::size_t end = i + 1;
    while (end < line.size() && line[end] != '"') end += line[end] == '\\' ? 2 : 1;
    const std::string text = line.substr(i + 1, std::min(end, line.size()) - i - 1);
    if (text.find(' ') != std::string::npos) cut.strings += text + " | ";
    cut.code += "\"\"";
    i = end + 1;
  }
  if (i < line.size()) cut.comment = prose_of(line.substr(i + mark.size()));
  return cut;
}

/// A line of Markdown without what stands between backquotes.
std::string without_code(const std::string& line) {
  std::string text;
  bool code = false;
  for (const char letter : line) {
    if (letter == '`') code = !code;
    if (!code) text += letter;
  }
  return prose_of(text);
}

/// A file as its readers see it.
struct Readable {
  std::vector<std::string> lines;     // as they are, without comment marks
  std::vector<std::string> prose;     // comments, Markdown outside code, strings that have a space
  std::vector<std::string> openings;  // where a comment begins on this line: its words
};

Readable readable(const std::string& path, std::istream& text) {
  const std::string extension = fs::path(path).extension().string();
  const bool page = extension == ".md";
  const std::set<std::string> scripts = {".py", ".yaml", ".sh", ".txt"};
  const std::string mark = scripts.contains(extension) ? "#" : "//";
  Readable all;
  bool fenced = false, in_comment = false;
  for (std::string line; std::getline(text, line);) {
    all.lines.push_back(prose_of(line));
    if (page) {
      const bool fence = prose_of(line).starts_with("```");
      all.prose.push_back(fenced || fence ? "" : without_code(line));
      all.openings.emplace_back();
      fenced = fenced != fence;
      continue;
    }
    const CodeLine cut = cut_code(line, mark);
    const bool alone = cut.code.find_first_not_of(" \t") == std::string::npos;
    all.prose.push_back(cut.strings + cut.comment);
    all.openings.push_back(in_comment && alone ? "" : cut.comment);
    in_comment = alone && !cut.comment.empty();
  }
  return all;
}

/// The lines on which a phrase may begin: those with an anchor, and those before them.
std::set<std::size_t> lines_with_anchors(const Prose& prose, const Phrase& phrase) {
  std::set<std::size_t> found;
  for (const std::string& anchor : phrase.anchors) {
    for (std::size_t place = prose.joined.find(anchor); place != std::string::npos;
         place = prose.joined.find(anchor, place + 1)) {
      const std::size_t line = prose.line_at(place);
      found.insert(line);
      if (line > 0) found.insert(line - 1);
    }
  }
  return found;
}

using Hits = std::vector<std::string>;

void note(Hits& hits, const std::string& path, std::size_t line, const std::smatch& hit) {
  hits.push_back(path + ":" + std::to_string(line + 1) + ": " + hit.str());
}

void find_in_prose(Hits& hits, const std::string& path, const Prose& prose, const Phrase& phrase) {
  for (const std::size_t number : lines_with_anchors(prose, phrase)) {
    const std::string& line = prose.lines[number];
    const bool last = number + 1 == prose.lines.size();
    const std::string both = line + " " + (last ? "" : prose.lines[number + 1]);
    std::smatch hit;
    if (std::regex_search(both, hit, phrase.expression) &&
        hit.position() < static_cast<std::ptrdiff_t>(line.size())) {
      note(hits, path, number, hit);
    }
  }
}

/// "path:line: phrase" of each hit.
Hits find_phrases(const std::string& path, std::istream& text, const std::vector<Phrase>& phrases) {
  const Readable file = readable(path, text);
  const Prose lines(file.lines), prose(file.prose);
  Hits found;
  for (const Phrase& phrase : phrases) {
    if (phrase.reach != Reach::opening) {
      find_in_prose(found, path, phrase.reach == Reach::lines ? lines : prose, phrase);
      continue;
    }
    for (std::size_t i = 0; i < file.openings.size(); ++i) {
      std::smatch hit;
      if (std::regex_search(file.openings[i], hit, phrase.expression)) note(found, path, i, hit);
    }
  }
  return found;
}

/// As if `line` were a comment.
std::vector<std::string> phrases_in(const std::string& line, const std::vector<Phrase>& phrases) {
  std::istringstream text("// " + line);
  return find_phrases("lib/a.h", text, phrases);
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
    for (const std::string& anchor : phrase.anchors) CHECK(anchor.size() > 2);
    CHECK(phrases_in(phrase.example, {phrase}).size() == 1);
    CHECK(phrases_in(phrase.plain, phrases).empty());
  }
}

TEST_CASE("a phrase is found across the end of a line") {
  std::istringstream text("/// one\n/// two is\n/// due here\n");
  const auto found = find_phrases("lib/a.h", text, read_phrases());
  CHECK(found == std::vector<std::string>{"lib/a.h:2: is due"});
}

TEST_CASE("phrases of prose are found in comments, pages and sentences, and not in code") {
  const std::vector<Phrase> phrases = read_phrases();
  const auto found = [&](const std::string& path, const std::string& text) {
    std::istringstream file(text);
    return find_phrases(path, file, phrases);
  };
  CHECK(found("lib/a.h", "int a;  // Of a row\n") == Hits{"lib/a.h:1: Of"});
  CHECK(found("lib/a.h", "// One row.\n// Of it.\n").empty());
  CHECK(found("lib/a.h", "x(\"a beside\");\n") == Hits{"lib/a.h:1: beside"});
  CHECK(found("lib/a.h", "x(\"beside\"); beside(b, '\"', \"x\");\n").empty());
  CHECK(found("docs/a.md", "a `beside` b\n```\nbeside\n```\none beside two\n") ==
        Hits{"docs/a.md:5: beside"});
  CHECK(found("scripts/a.sh", "beside=1  # runs beside\n") == Hits{"scripts/a.sh:1: beside"});
}

TEST_CASE("documents, sources, tests, scripts and examples are written in plain English") {
  const std::vector<Phrase> phrases = read_phrases();
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
