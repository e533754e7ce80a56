// `migrate --from`: another project's file as keys with values, the configuration that grows from
// it, and the rules of single projects.
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

/// The most values that are read of one file.
inline constexpr std::size_t max_foreign_values = 5000;

/// Without blanks and carriage returns at its ends.
std::string trimmed(std::string_view text);
bool is_name_character(char c);

/// One key of such a file with its words; none for a flag.
struct ForeignValue {
  std::string key;  // "--num-layers", "-b", "n_layer", "training.steps"
  std::vector<std::string> words;
  bool is_list = false;
  bool is_code = false;  // an expression, not a literal
  Span span;             // of the key
};

/// Options with what follows them, of a command line or a shell script: comments, line ends behind
/// a backslash, arrays, quotes, and variables that the script sets. `$NAME` that it does not set
/// becomes `${NAME}`.
std::vector<ForeignValue> read_arguments(const std::string& text);
/// `name = literal` on lines of their own; products of numbers are literals. Options such as
/// --n_layer=4 are read too.
std::vector<ForeignValue> read_assignments(const std::string& text);
/// Tables and plain values; a key has its table's name before it.
std::vector<ForeignValue> read_toml(const std::string& text);

// A configuration of ours as it grows from a file of another project.

/// The configuration as it grows from a file of another project.
class Migration {
 public:
  Migration(Project project, const std::string& file, std::vector<ForeignValue> values,
            YamlTree& tree, Diagnostics& diagnostics);

  /// Carries over each key by its row; later ones win over earlier ones of the same name.
  void carry_rows();
  /// The last value of a key, by the name in its row; none if it is not given.
  const ForeignValue* given(std::string_view key) const;
  /// The value of a key by its name as written. The key needs no row in other_keys.h.
  const ForeignValue* written_as(std::string_view key) const;
  std::string text(std::string_view key, const std::string& otherwise = "") const;
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key) const;  // given, and not false

  /// The value that our configuration has at a path so far; nothing if none was put there.
  std::optional<std::string> at(const std::string& path) const;
  double number_at(const std::string& path, double otherwise) const;
  /// Sets a value, in place of another; `why` becomes the comment on its line.
  void put(const std::string& path, const std::string& value, const std::string& why);
  void put(const std::string& path, double value, const std::string& why);
  /// Sets a value as a default of that project, if the path has no value yet.
  void put_default(const std::string& path, const std::string& value);
  void put_list(const std::string& path, int node, const std::string& why);
  void remove(const std::string& path);
  void not_carried(std::string_view key, const std::string& why);
  /// A key of the file that asks for what is not built.
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
  std::map<std::string, const ForeignValue*> from_;  // path -> the key that gave it
  int root_ = -1;
  int line_ = 0;
};

// Rules of single projects: settings that follow from several keys, and defaults that differ from
// ours.

struct Default {
  const char* path;
  const char* value;
};

template <class Table>
void put_defaults(Migration& migration, const Table& table) {
  for (const Default& row : table) migration.put_default(row.path, row.value);
}

/// The optimizer's values are sharded; gradients stay whole until the step.
void shard_optimizer(Migration& migration, const std::string& why);

void settle_megatron(Migration& migration);

/// All rules of migration.project(), after its keys were carried over.
void apply_project_rules(Migration& migration);

}  // namespace trainctl
