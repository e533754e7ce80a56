// The errors and warnings about the user's configuration, collected so that all are shown at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainctl {

/// The source of a value. Lines and columns start at 1; 0 means none.
struct Place {
  enum class Origin { file, set_option, preset, model_files, defaulted };
  Origin origin = Origin::defaulted;
  // file or model_files (the model's config.json): name of the file; set_option: text of the
  // argument; preset: its name; defaulted: section with the default if it is not ours
  std::string file;
  int line = 0;
  int column = 0;
  int end_column = 0;  // exclusive; columns count characters, not bytes
  std::string note{};  // variable that gave it: "from ${STEPS}", "default of ${STEPS}"
  /// Text such as "gpt.yaml:3:14", "gpt.yaml:3:9, from ${STEPS}", "--set train.steps=x", "preset
  /// gpt2-124m" or "default".
  std::string to_string() const;
  /// Like to_string(), without the note.
  std::string position() const;
};

/// The place of a file as a whole.
inline Place whole_file(const std::string& name) { return {Place::Origin::file, name}; }

/// Maps dotted paths to the places where their values were given.
class SourceMap {
 public:
  void record(const std::string& path, Place place) { places_[path] = std::move(place); }
  /// The place of `path`, else of its nearest enclosing section, else "default".
  Place find(const std::string& path) const;
  const std::map<std::string, Place>& places() const { return places_; }

 private:
  std::map<std::string, Place> places_;
};

/// Why a value was refused, in the terms of Diagnostic.
struct Problem {
  std::string code;
  std::string message;
  std::string help;
};

enum class Severity { error, warning };

struct Diagnostic {
  Severity severity = Severity::error;
  std::string code;     // stable name, such as "unknown-key", "not-built" or "heads-divide"
  std::string path;     // dotted path in the schema, empty for syntax errors
  std::string message;  // one sentence, no final period: the value, the rule and its numbers
  std::string help;     // suggestion; may be empty
  Place place{};
};

class Diagnostics {
 public:
  /// Adds a finding; its message and help name keys as the user wrote them.
  void add(Diagnostic diagnostic);
  /// Makes later messages call the key or dotted path `ours` by the name `written`.
  void call(const std::string& ours, const std::string& written) { written_[ours] = written; }
  /// The name that call() gave to a key or path, else the path itself.
  std::string written(const std::string& path) const;
  bool has_errors() const;
  const std::vector<Diagnostic>& list() const { return list_; }
  /// Sorts by file, line and column, with missing keys after the rest of the file, and drops exact
  /// repeats.
  void sort();
  /// Removes the findings for which `test` is true.
  template <class Test>
  void drop_if(Test test) {
    std::erase_if(list_, test);
  }
  /// Removes errors for which `test` is true, such as a missing required value that is not needed
  /// here or is given under another name. Rules about these values still stay silent.
  template <class Test>
  void forgive_if(Test test) {
    for (const Diagnostic& one : list_) {
      if (test(one)) forgiven_.push_back(one.path);
    }
    drop_if(test);
  }
  /// Paths of forgiven values.
  const std::vector<std::string>& forgiven() const { return forgiven_; }
  /// Replaces all findings after the first `most` by one that tells their number.
  void keep_first(std::size_t most);
  /// Stores the text of a file, so that its lines can be shown below messages.
  void add_source(const std::string& file, std::string text) { sources_[file] = std::move(text); }
  /// The source line of `place`, or "" if there is none.
  std::string source_line(const Place& place) const;

 private:
  std::vector<Diagnostic> list_;
  std::vector<std::string> forgiven_;
  std::map<std::string, std::string> sources_;
  std::map<std::string, std::string> written_;
};

/// Text with the source line and a caret, as compilers print it; in colour if `color`.
std::string render_text(const Diagnostics& diagnostics, bool color);
/// One JSON document: format_version, valid, error_count, warning_count, diagnostics[] with ranges,
/// and `not_checked` if given: the list of checks that were not made.
std::string render_json(const Diagnostics& diagnostics,
                        const std::vector<std::string>& not_checked = {});
/// A line per finding, as GitHub's workflow commands: "::error file=...,line=...::message".
std::string render_github(const Diagnostics& diagnostics);

/// The candidate nearest to `word` within edit distance max(1, length / 3), or "". A candidate that
/// `word` continues ("keep" of "keep_last") counts as at distance 1.5.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

// Shortens long source lines for display below a message.

/// The text with newlines and bytes that control a terminal (steering_bytes) replaced by "?".
std::string printable(std::string_view text);

// The rows of render_json's document, for other documents that list findings.

/// Each finding as a JSON object on one line.
std::vector<std::string> json_rows(const Diagnostics& diagnostics);

}  // namespace trainctl
