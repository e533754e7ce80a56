// How far each key of the schema has come: what a run does with it. Keys that are not in the table
// take effect. What is not built `plan` can show, and everything that runs refuses (run/prepare.h).
#pragma once

#include <span>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"

namespace trainctl {

struct Standing {
  enum class Status { not_built, no_effect };
  std::string_view path;  // a key, or a section with all of its keys
  Status status = Status::not_built;
  std::string_view plain;  // values that ask for nothing, as YAML, "|" between them; "*": all of
                           // them, since another key switches the feature on
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

}  // namespace trainctl
