// Which keys of the schema are not built or have no effect; all keys outside the table take effect.
// `plan` can show features that are not built; commands that run refuse them (run/prepare.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "config/yaml/tree.h"

namespace trainctl {

struct Standing {
  std::string_view path;   // a key, or a section for all of its keys
  bool built = false;      // built, but without an effect
  std::string_view plain;  // values that ask for nothing, as YAML, separated by "|"; "*": all
                           // values, since another key switches the feature on
  std::string_view note;   // not_built: alternative, may be empty; no_effect: reason
};

std::span<const Standing> standings();
/// The row of a path or of its section; nullptr if the key takes effect.
const Standing* find_standing(std::string_view path);

/// The status in the mapping table: "supported", "partly built" (for some values), "not built yet"
/// or "no effect".
std::string_view status_of(std::string_view path);

/// "today: KEY: VALUE", the alternative to a key that is not built; "" if there is none.
std::string today(std::string_view path);

/// Adds a "not-built" finding of this severity for each value that is not built, unless it has a
/// "no-effect" warning already.
void check_built(const Config& config, const SourceMap& sources, Severity severity,
                 Diagnostics& diagnostics);
/// Adds a "no-effect" warning for each given value that differs from the default but has no effect:
/// keys without effect here, and keys of a feature that is switched off. Skips keys that have such
/// a warning already.
void check_effect(const Config& config, const SourceMap& sources, Diagnostics& diagnostics);

// Keys of MindSpore, MindFormers and Megatron that are not in the lists of upstream.h and have no
// counterpart in our schema. They are recognised so that errors and warnings can explain them.

struct ForeignKey {
  /// How the key is answered.
  ///   not_built  values other than the plain ones ask for a feature that is not built
  ///   changes    they would change model, data, optimizer, schedule or start: an error
  ///   idle       it has no effect here: ignored with a warning in a MindFormers file
  using Answer = OneOf<"not_built|changes|idle">;
  std::string_view section;  // our section, or one of a MindFormers file; "" for the top level
  std::string_view key;
  Answer answer;
  std::string_view plain;    // values that ask for nothing, separated by "|"
  std::string_view instead;  // the alternative: keys of ours, or "use ..."; may be empty. idle: the
                             // reason why the key has no effect
};

/// All such keys, those of a whole MindFormers file too: of its top level and its sections for the
/// runner, the data and the model.
const std::vector<ForeignKey>& foreign_keys();
/// The entry of a key in a section, or nullptr.
const ForeignKey* find_foreign(std::string_view section, std::string_view key);
/// Whether the value asks for nothing: one of `plain`, null, or an empty text, map or list.
bool asks_nothing(const ForeignKey& foreign, const YamlNode& value);
/// Help such as "write parallel.context_parallel", "use trainctl plan" or "remove it".
std::string help_of(const ForeignKey& foreign);

}  // namespace trainctl
