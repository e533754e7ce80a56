// The errors and warnings about the user's configuration, collected so that all are shown at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainctl {

/// Where a value came from. Lines and columns start at 1; 0 means none.
struct Place {
  enum class Origin { file, set_option, preset, model_files, defaulted };
  Origin origin = Origin::defaulted;
  // for Origin::file and model_files (the model's config.json); the argument text for set_option;
  // the preset's name for preset; for defaulted the section whose default it is, if not ours
  std::string file;
  int line = 0;
  int column = 0;
  int end_column = 0;  // exclusive; columns count characters, not bytes
  std::string note{};  // "from ${STEPS}", "default of ${STEPS}": the variable it came from
  /// "gpt.yaml:3:14", "gpt.yaml:3:9, from ${STEPS}", "--set train.steps=x", "preset gpt2-124m",
  /// "default"
  std::string to_string() const;
  /// Like to_string(), without the note.
  std::string position() const;
};

/// Dotted path -> where its value was given.
class SourceMap {
 public:
  void record(const std::string& path, Place place) { places_[path] = std::move(place); }
  /// The place of `path`, else of its nearest enclosing section, else "default".
  Place find(const std::string& path) const;
  const std::map<std::string, Place>& places() const { return places_; }

 private:
  std::map<std::string, Place> places_;
};

/// Why a value was refused; Diagnostic says what each text is.
struct Problem {
  std::string code;
  std::string message;
  std::string help;
};

enum class Severity { error, warning };

struct Diagnostic {
  Severity severity = Severity::error;
  std::string code;     // stable, for example "unknown-key", "not-built", "heads-divide"
  std::string path;     // dotted path in the schema, empty for syntax errors
  std::string message;  // the value and the rule with its numbers, one sentence, no final period
  std::string help;     // a suggestion, may be empty
  Place place;
};

class Diagnostics {
 public:
  /// Adds a finding; its message and help name keys as the user wrote them.
  void add(Diagnostic diagnostic);
  /// From now on, messages call the key or dotted path `ours` by the name `written`.
  void call(const std::string& ours, const std::string& written) { written_[ours] = written; }
  /// The name that `call` gave to a key or path, or the path itself.
  std::string written(const std::string& path) const;
  bool has_errors() const;
  const std::vector<Diagnostic>& list() const { return list_; }
  /// Orders by file, line and column, with missing keys after the rest of the file, and drops exact
  /// repeats.
  void sort();
  /// Removes the findings for which `test` is true.
  template <class Test>
  void drop_if(Test test) {
    std::erase_if(list_, test);
  }
  /// Takes out the errors that `test` says yes to: required values that are missing and not needed
  /// here, or there under another name. Rules about them stay silent all the same.
  template <class Test>
  void forgive_if(Test test) {
    for (const Diagnostic& one : list_) {
      if (test(one)) forgiven_.push_back(one.path);
    }
    drop_if(test);
  }
  /// Paths of forgiven values.
  const std::vector<std::string>& forgiven() const { return forgiven_; }
  /// Replaces all findings after the first `most` by one that says how many were dropped.
  void keep_first(std::size_t most);
  /// Stores the text of a file, so that its lines can be shown under a message.
  void add_source(const std::string& file, std::string text) { sources_[file] = std::move(text); }
  /// The line that `place` points into, or "" if there is none.
  std::string source_line(const Place& place) const;

 private:
  std::vector<Diagnostic> list_;
  std::vector<std::string> forgiven_;
  std::map<std::string, std::string> sources_;
  std::map<std::string, std::string> written_;
};

/// Text with the source line and a caret, as compilers print it; `color` adds terminal colours.
std::string render_text(const Diagnostics& diagnostics, bool color);
/// One JSON document: format_version, valid, error_count, warning_count, diagnostics[] with ranges;
/// not_checked: the list of what was not checked, if it is given.
std::string render_json(const Diagnostics& diagnostics,
                        const std::vector<std::string>& not_checked = {});
/// One line for each, as GitHub's workflow commands: "::error file=...,line=...::message".
std::string render_github(const Diagnostics& diagnostics);

/// The nearest of `candidates` within edit distance max(1, length / 3), or "". One that the word
/// continues ("keep" of "keep_last") is as near as one and a half letters.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// The part of a source line that is shown under a message; long lines are shortened around it.

/// The text with each newline and all that steers a terminal (steering_bytes) replaced by "?".
std::string printable(std::string_view text);

// The rows of render_json's document (diagnostics.h), for documents that list findings too.

/// Each finding as a JSON object on one line.
std::vector<std::string> json_rows(const Diagnostics& diagnostics);

}  // namespace trainctl
