#include "config/report/diagnostics.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "base/text.h"

namespace trainctl {
namespace {

/// Number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> previous(b.size() + 1);
  std::vector<std::size_t> current(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      current[j] = std::min(
          {previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) current[j] = std::min(current[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return previous[b.size()];
}

}  // namespace

std::string Place::to_string() const { return position() + (note.empty() ? "" : ", " + note); }

std::string Place::position() const {
  switch (origin) {
    case Origin::file:
      if (line == 0) return file;
      return formatted("{}:{}:{}", file, line, column);
    case Origin::set_option: return "--set " + file;
    case Origin::preset: return "preset " + file;
    case Origin::model_files: return file;
    case Origin::defaulted: break;
  }
  return file.empty() ? "default" : "default of " + file;
}

Place SourceMap::find(const std::string& path) const {
  std::string wanted = path;
  while (true) {
    const auto found = places_.find(wanted);
    if (found != places_.end()) return found->second;
    const std::size_t dot = wanted.rfind('.');
    if (dot == std::string::npos) return {};
    wanted.erase(dot);
  }
}

namespace {

/// Letters, digits, _ and dots, which form a key or a dotted path.
bool is_key_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
}

std::string renamed(const std::string& text, const std::map<std::string, std::string>& names) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_key_character(text[end])) ++end;
    const auto name = names.find(text.substr(at, end - at));
    result += name == names.end() ? text.substr(at, end - at) : name->second;
    if (end < text.size()) result += text[end++];
    at = end;
  }
  return result;
}

}  // namespace

void Diagnostics::add(Diagnostic diagnostic) {
  if (!written_.empty()) {
    diagnostic.message = renamed(diagnostic.message, written_);
    diagnostic.help = renamed(diagnostic.help, written_);
  }
  list_.push_back(std::move(diagnostic));
}

std::string Diagnostics::written(const std::string& path) const {
  const auto found = written_.find(path);
  return found == written_.end() ? path : found->second;
}

bool Diagnostics::has_errors() const {
  return std::any_of(list_.begin(), list_.end(), [](const Diagnostic& diagnostic) {
    return diagnostic.severity == Severity::error;
  });
}

void Diagnostics::sort() {
  // Findings about the file come before those about --set. A missing key comes after the file's
  // other errors, since a misspelt key is often the cause.
  std::stable_sort(list_.begin(), list_.end(), [](const Diagnostic& a, const Diagnostic& b) {
    const bool a_elsewhere = a.place.origin != Place::Origin::file;
    const bool b_elsewhere = b.place.origin != Place::Origin::file;
    const bool a_missing = a.code == "missing-key";
    const bool b_missing = b.code == "missing-key";
    return std::tie(a_elsewhere, a.place.file, a_missing, a.place.line, a.place.column) <
           std::tie(b_elsewhere, b.place.file, b_missing, b.place.line, b.place.column);
  });
  // All repeats are dropped, since other findings with the same place may separate them.
  const auto key = [](const Diagnostic& d) {
    return std::make_tuple(d.severity, d.code, d.path, d.message, d.place.file, d.place.line,
                           d.place.column);
  };
  std::set<decltype(key(list_.front()))> seen;
  std::vector<Diagnostic> kept;
  for (Diagnostic& diagnostic : list_) {
    if (seen.insert(key(diagnostic)).second) kept.push_back(std::move(diagnostic));
  }
  list_ = std::move(kept);
}

void Diagnostics::keep_first(std::size_t most) {
  if (list_.size() <= most) return;
  const std::size_t dropped = list_.size() - most;
  list_.resize(most);
  list_.push_back(
      {Severity::error, "too-many", "", formatted("{} more findings are not shown", dropped), ""});
}

std::string Diagnostics::source_line(const Place& place) const {
  if (place.line < 1) return "";
  if (place.origin == Place::Origin::set_option) return place.file;
  const auto found = sources_.find(place.file);
  if (place.origin != Place::Origin::file || found == sources_.end()) return "";
  const std::string& text = found->second;
  std::size_t start = 0;
  for (int line = 1; line < place.line; ++line) {
    start = text.find('\n', start);
    if (start == std::string::npos) return "";
    ++start;
  }
  return text.substr(start, text.find('\n', start) - start);
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest = 100;
  if (word.empty() || word.size() > longest) return "";
  // Distances count half letters. A candidate that the word continues ("keep" of "keep_last") is
  // nearer than one with two other letters ("keep_best").
  constexpr std::size_t more_words = 3;
  std::size_t best = 2 * (std::max<std::size_t>(1, word.size() / 3) + 1);
  std::string result;
  for (const std::string& candidate : candidates) {
    const std::size_t letters = 2 * edit_distance(word, candidate);
    const std::size_t distance =
        word.starts_with(candidate + "_") ? std::min(letters, more_words) : letters;
    if (distance >= best) continue;
    best = distance;
    result = candidate;
  }
  return result;
}

}  // namespace trainctl
