// Everything that is wrong or worth a warning in the user's configuration, collected and shown at
// once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trainctl {

/// Where a value came from. Lines and columns start at 1; 0 means none.
struct Place {
  enum class Origin { file, set_option, preset, defaulted };
  Origin origin = Origin::defaulted;
  // for Origin::file; the argument text for set_option; the preset's name for preset
  std::string file;
  int line = 0;
  int column = 0;
  int end_column = 0;  // exclusive; columns count characters, not bytes
  std::string note{};  // "from ${STEPS}", "default of ${STEPS}": where the file took it from
  /// "gpt.yaml:3:14", "gpt.yaml:3:9, from ${STEPS}", "--set train.steps=x", "preset gpt2-124m",
  /// "default"
  std::string to_string() const;
  /// The same without the note.
  std::string position() const;
};

/// Dotted path -> where its value stands.
class SourceMap {
 public:
  void record(const std::string& path, Place place) { places_[path] = std::move(place); }
  /// The place of `path`, else of its nearest enclosing section, else "default".
  Place find(const std::string& path) const;
  const std::map<std::string, Place>& places() const { return places_; }

 private:
  std::map<std::string, Place> places_;
};

enum class Severity { error, warning };

struct Diagnostic {
  Severity severity = Severity::error;
  std::string code;     // stable, for example "unknown-key", "not-built", "heads-divide"
  std::string path;     // dotted config path, may be empty for syntax errors
  std::string message;  // the value and the rule with its numbers, one sentence, no final period
  std::string help;     // a suggestion, may be empty
  Place place;
};

class Diagnostics {
 public:
  void add(Diagnostic diagnostic) { list_.push_back(std::move(diagnostic)); }
  bool has_errors() const;
  const std::vector<Diagnostic>& list() const { return list_; }
  /// By file, line, column; exact repeats dropped.
  void sort();
  /// Removes what `test` says yes to.
  template <class Test>
  void drop_if(Test test) {
    std::erase_if(list_, test);
  }
  /// Takes out the errors that `test` says yes to: required values that are missing and that nobody
  /// needs here. Rules about them stay silent all the same.
  template <class Test>
  void forgive_if(Test test) {
    for (const Diagnostic& one : list_) {
      if (test(one)) forgiven_.push_back(one.path);
    }
    drop_if(test);
  }
  /// Paths of forgiven values.
  const std::vector<std::string>& forgiven() const { return forgiven_; }
  /// Replaces everything after the first `most` by one line that says how much was left out.
  void keep_first(std::size_t most);
  /// Keeps the text of a file, so that its lines can be shown under a message.
  void add_source(const std::string& file, std::string text) { sources_[file] = std::move(text); }
  /// The line that `place` points into, or "" where there is none.
  std::string source_line(const Place& place) const;

 private:
  std::vector<Diagnostic> list_;
  std::vector<std::string> forgiven_;
  std::map<std::string, std::string> sources_;
};

/// Text with the source line and a caret, as compilers print; colours only when asked.
std::string render_text(const Diagnostics& diagnostics, bool color);
/// One JSON document: format_version, valid, error_count, warning_count, diagnostics[] with ranges;
/// not_checked: what was not looked at, where that is said.
std::string render_json(const Diagnostics& diagnostics,
                        const std::vector<std::string>& not_checked = {});
/// One line for each, as GitHub's workflow commands: "::error file=...,line=...::message".
std::string render_github(const Diagnostics& diagnostics);

/// The nearest of `candidates` within edit distance max(1, length / 3), or "".
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace trainctl
