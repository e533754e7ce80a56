// A configuration of ours as it grows from a file of another project.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/migrate/foreign_text.h"
#include "config/report/diagnostics.h"
#include "config/upstream/other_keys.h"
#include "config/yaml/comments.h"

namespace trainctl {

/// The configuration as it grows from a file of another project.
class Migration {
 public:
  Migration(Project project, const std::string& file, std::vector<ForeignValue> values,
            YamlTree& tree, Diagnostics& diagnostics);

  /// Carries over each key by its row; later ones win over earlier ones of the same name.
  void carry_rows();
  /// The last value of a key, by the name in its row; none if it is not given.
  const ForeignValue* given(std::string_view key) const;
  /// The same by the name as written, which needs no row.
  const ForeignValue* written_as(std::string_view key) const;
  std::string text(std::string_view key, const std::string& otherwise = "") const;
  double number(std::string_view key, double otherwise) const;
  bool flag(std::string_view key) const;  // given, and not false

  /// What our configuration has at a path so far.
  std::optional<std::string> at(const std::string& path) const;
  double number_at(const std::string& path, double otherwise) const;
  /// Sets a value, in place of another; `why` becomes the comment on its line.
  void put(const std::string& path, const std::string& value, const std::string& why);
  void put(const std::string& path, double value, const std::string& why);
  /// The same where nothing is set, as a default of that project.
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

}  // namespace trainctl
