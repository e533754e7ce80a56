// How far each key of the schema has come: what a run does with it. Keys that are not in the table
// take effect. What is not built `plan` can show, and everything that runs refuses (run/prepare.h).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "config/yaml/tree.h"

namespace trainctl {

struct Standing {
  std::string_view path;   // a key, or a section with all of its keys
  bool built = false;      // built, but without an effect
  std::string_view plain;  // values that ask for nothing, as YAML, "|" between them; "*": every
                           // value, since another key switches the feature on
  std::string_view note;   // what serves today, may be empty; no_effect: why
};

std::span<const Standing> standings();
/// The row for a path (its own or its section's), or nullptr: the key takes effect.
const Standing* find_standing(std::string_view path);

/// "supported", "partly built" (for some values), "not built yet" or "no effect", as the mapping
/// table shows it.
std::string_view status_of(std::string_view path);

/// "today: KEY: VALUE", or "" where nothing serves instead.
std::string today(std::string_view path);

/// Adds "not-built" findings of the given severity for values that are not built; a value that has
/// a "no-effect" warning already needs nothing built.
void check_built(const Config& config, const SourceMap& sources, Severity severity,
                 Diagnostics& diagnostics);
/// Adds "no-effect" warnings for values that were given, differ from the default and change
/// nothing: keys without effect here, and keys of a feature that is switched off. Says nothing of
/// keys that have such a warning already.
void check_effect(const Config& config, const SourceMap& sources, Diagnostics& diagnostics);

// Keys of MindSpore, MindFormers and Megatron that are not in the lists of upstream.h and have no
// counterpart in our schema: recognised, so that an error or a warning says what they are.

struct ForeignKey {
  enum class Answer {
    not_built,  // other values than the plain ones ask for something that is not built
    changes,    // other values than the plain ones would change the model, the data, the optimizer,
                // the schedule or how a run starts: an error
    idle,       // nothing here depends on it: ignored with a warning in a MindFormers file
  };
  std::string_view section;  // ours, or that of a MindFormers file; "" for the top level
  std::string_view key;
  Answer answer = Answer::not_built;
  std::string_view plain;    // the values that ask for nothing, "|" between them
  std::string_view instead;  // what to use instead: keys of ours, or "use ..."; may be empty. idle:
                             // why nothing depends on it
};

std::span<const ForeignKey> foreign_keys();
/// Further keys of a whole MindFormers file: its top level and its sections for the runner, the
/// data and the model.
std::span<const ForeignKey> foreign_mindformers_keys();
/// The entry for a key of a section, or nullptr.
const ForeignKey* find_foreign(std::string_view section, std::string_view key);
/// Whether the value asks for nothing: it is plain, null, an empty text, map or list.
bool asks_nothing(const ForeignKey& foreign, const YamlNode& value);
/// "write parallel.context_parallel", "use trainctl plan" or "remove it".
std::string help_of(const ForeignKey& foreign);

}  // namespace trainctl
