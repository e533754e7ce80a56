#include "library_names.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "source_rules.h"

namespace {

/// The declarations of an unnamed namespace. Functions of different parameters may share a name.
struct Declared {
  std::string name;
  bool function = false;
  std::string parameters{};
};

bool clash(const Declared& one, const Declared& other) {
  if (one.name != other.name) return false;
  return !one.function || !other.function || one.parameters == other.parameters;
}

std::string last_word(const std::string& text) {
  const std::size_t end = text.find_last_not_of(' ');
  const std::size_t before = text.find_last_of(" *&>", end);
  return text.substr(before + 1, end - before);
}

bool is_operator(const std::string& name) {
  const std::string word = "operator";
  if (!name.starts_with(word)) return false;
  const char next = name.size() > word.size() ? name[word.size()] : '(';
  return next != '_' && std::isalnum(static_cast<unsigned char>(next)) == 0;
}

/// Types, values and functions with a body; nothing else, so that what is found is certain.
/// `statement` is without what follows: `end` is { or ;.
void declare(const std::string& statement, char end, std::vector<Declared>& found) {
  if (statement.empty() || std::isalpha(static_cast<unsigned char>(statement[0])) == 0) {
    return;  // the rest of a value, or nothing
  }
  std::istringstream words(statement);
  std::string first, second;
  words >> first >> second;
  for (const char* other : {"template", "using", "static_assert", "friend", "extern", "typedef"}) {
    if (first.starts_with(other)) return;
  }
  if (first == "enum" && (second == "class" || second == "struct")) words >> second;
  if (first == "struct" || first == "class" || first == "enum" || first == "union") {
    if (end == '{' && !second.empty()) found.push_back({.name = second});
    return;
  }
  const std::size_t opens = statement.find('(');
  const std::size_t value = statement.find(" = ");
  if (opens < value) {
    const std::size_t closes = statement.rfind(')');
    const std::string name = last_word(statement.substr(0, opens));
    if (end != '{' || is_operator(name)) return;
    found.push_back(
        {.name = name, .function = true, .parameters = statement.substr(opens, closes - opens)});
    return;
  }
  std::string before = statement.substr(0, value);
  before = before.substr(0, before.find('['));
  const std::string name = last_word(before);
  if (name.size() < before.size()) found.push_back({.name = name});
}

/// Reads the text of a file letter by letter: only what lies directly in an unnamed namespace
/// counts.
class Reader {
 public:
  std::vector<Declared> read(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t start = line.find_first_not_of(' ');
      if (start == std::string::npos || line[start] == '#') continue;
      const std::string code = code_of(line);
      for (std::size_t i = 0; i < code.size(); ++i) i = take(code, i);
      add(' ');
    }
    return std::move(found_);
  }

 private:
  enum class Scope { named, unnamed, code };

  /// Returns the place of the last letter that it took.
  std::size_t take(const std::string& code, std::size_t place) {
    if (code[place] == '\'') {  // a character; or between digits
      const std::size_t length = code.compare(place, 2, "'\\") == 0 ? 4 : 3;
      if (code.substr(place, length).back() == '\'' && code.size() >= place + length) {
        add('0');
        return place + length - 1;
      }
    }
    const char letter = code[place];
    open_ += letter == '(' ? 1 : letter == ')' ? -1 : 0;
    if (open_ > 0 || (letter != '{' && letter != '}' && letter != ';')) {
      add(letter);
    } else {
      end_statement(letter);
    }
    return place;
  }

  void add(char letter) {
    const bool space = letter == ' ';
    if (space && (statement_.empty() || statement_.back() == ' ')) return;
    statement_ += letter;
  }

  void end_statement(char letter) {
    const bool in_namespaces = std::ranges::count(scopes_, Scope::code) == 0;
    const bool unnamed = std::ranges::count(scopes_, Scope::unnamed) > 0;
    const bool opens_namespace = statement_.starts_with("namespace ");
    if (in_namespaces && unnamed && !opens_namespace && letter != '}')
      declare(statement_, letter, found_);
    if (letter == '{') {
      scopes_.push_back(!opens_namespace             ? Scope::code
                        : statement_ == "namespace " ? Scope::unnamed
                                                     : Scope::named);
    }
    if (letter == '}' && !scopes_.empty()) scopes_.pop_back();
    statement_.clear();
  }

  std::vector<Declared> found_;
  std::vector<Scope> scopes_;
  std::string statement_;
  int open_ = 0;  // parentheses
};

/// Files that are compiled by themselves.
bool is_alone(const std::string& path) { return path.starts_with("lib/ops/cuda/"); }

/// The library whose files may be compiled together with this one. The kernels of the CPU in
/// lib/ops are one of their own.
std::string library_of(const std::string& path) {
  const std::string kernels = "lib/ops/cpu";
  return path.starts_with(kernels) ? kernels : path.substr(0, path.find('/', 4));
}

}  // namespace

std::vector<std::string> shared_names(const std::map<std::string, std::string>& texts) {
  struct Use {
    std::string path;
    Declared declared;
  };
  std::map<std::string, std::vector<Use>> uses;  // by library and name
  std::vector<std::string> found;
  for (const auto& [path, text] : texts) {
    if (!path.starts_with("lib/") || !path.ends_with(".cpp") || is_alone(path)) continue;
    for (const Declared& declared : Reader().read(text)) {
      const std::string name = library_of(path) + ":" + declared.name;
      std::vector<Use>& others = uses[name];
      const auto other = std::ranges::find_if(others, [&](const Use& use) {
        return use.path != path && clash(use.declared, declared);
      });
      if (other != others.end()) {
        found.push_back(path + ": " + declared.name + " is a name of " + other->path + ", too");
      }
      others.push_back({path, declared});
    }
  }
  return found;
}
