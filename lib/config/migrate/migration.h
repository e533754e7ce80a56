// `migrate --from`: reads another project's file as keys with values, builds our configuration, and
// applies the rules of each project.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/migrate/write_yaml.h"
#include "config/report/diagnostics.h"
#include "config/upstream/other_keys.h"
#include "config/yaml/tree.h"

namespace trainctl {

/// The most values read from one file.
inline constexpr std::size_t max_foreign_values = 5000;

/// The text without blanks and carriage returns at its ends.
std::string trimmed(std::string_view text);
bool is_name_character(char c);

/// A key of another project's file with its words; a flag has none.
struct ForeignValue {
  std::string key;  // such as "--num-layers", "-b", "n_layer" or "training.steps"
  std::vector<std::string> words;
  bool is_list = false;
  bool is_code = false;  // the value is an expression, not a literal
  Span span;             // place of the key
};

/// Reads the options of a command line or a shell script with their words. Handles comments, line
/// continuations, arrays, quotes, and variables that the script sets. A `$NAME` that the script
/// does not set becomes `${NAME}`.
std::vector<ForeignValue> read_arguments(const std::string& text);
/// Reads lines `name = literal`; products of numbers count as literals. Also reads options such as
/// --n_layer=4.
std::vector<ForeignValue> read_assignments(const std::string& text);
/// Reads plain values of TOML; the key of a value in a table is "table.key".
std::vector<ForeignValue> read_toml(const std::string& text);

// A configuration of ours as it grows from a file of another project.

/// The configuration as it grows from a file of another project.
class Migration {
 public:
  Migration(Project project, const std::string& file, std::vector<ForeignValue> values,
            YamlTree& tree, Diagnostics& diagnostics);

  /// Carries over each key by its row of the table; the last of several equal keys wins.
  void carry_rows();
  /// The last value of a key, by the name in its row; none if the file lacks the key.
  const ForeignValue* given(std::string_view key) const;
  /// The last value of a key by its name as written. The key needs no row in other_keys.h.
  const ForeignValue* written_as(std::string_view key) const;
  std::string text(std::string_view key, const std::string& otherwise = "") const;
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key) const;  // true if the key is given and is not false

  /// The present value at a path of our configuration; none if it was not set yet.
  std::optional<std::string> at(const std::string& path) const;
  double number_at(const std::string& path, double otherwise) const;
  /// Sets a value or replaces it; `why` becomes the comment on its line.
  void put(const std::string& path, const std::string& value, const std::string& why);
  void put(const std::string& path, double value, const std::string& why);
  /// Sets a default of the other project, if the path has no value yet.
  void put_default(const std::string& path, const std::string& value);
  void put_list(const std::string& path, int node, const std::string& why);
  void remove(const std::string& path);
  void not_carried(std::string_view key, const std::string& why);
  /// Reports a key whose feature is not built.
  void refuse(const ForeignValue& value, const std::string& message, const std::string& help);
  void refuse(const std::string& path, const std::string& message, const std::string& help,
              const char* code = "two-spellings");

  Project project() const { return project_; }
  YamlTree& tree() { return tree_; }
  int root() const { return root_; }
  Comments& comments() { return comments_; }

 private:
  void carry(const ForeignValue& value);
  void carry_to(const std::string& path, const std::string& text, const ForeignValue& value);
  void carry_list(const std::string& path, const ForeignValue& value);
  void contradict(const std::string& path, const ForeignValue& value);
  int map_of(const std::string& path);
  int scalar(const std::string& text);
  bool is_last(const ForeignValue& value) const;
  static std::string written(const ForeignValue& value);

  Project project_;
  std::string file_;
  std::vector<ForeignValue> values_;
  YamlTree& tree_;
  Diagnostics& diagnostics_;
  Comments comments_;
  std::map<std::string, const ForeignValue*> from_;  // path -> key that set it
  int root_ = -1;
  int line_ = 0;
};

// Rules of each project: settings that follow from several keys, and defaults that differ from
// ours.

/// Sets the values of "PATH=VALUE PATH=VALUE" whose paths have none yet: defaults of the other
/// project, unless `why` tells another reason.
void put_defaults(Migration& migration, std::string_view values, const std::string& why = "");

/// Shards the optimizer's state; gradients are not sharded until the step.
void shard_optimizer(Migration& migration, const std::string& why);

void settle_megatron(Migration& migration);

/// Applies all rules of migration.project(), after carry_rows().
void apply_project_rules(Migration& migration);

}  // namespace trainctl
