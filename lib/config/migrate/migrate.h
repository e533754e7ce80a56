// A configuration rewritten with canonical keys only, in the schema's order.
#pragma once

#include <string>
#include <string_view>

#include "config/report/diagnostics.h"

namespace trainctl {

struct Migrated {
  bool ok = false;   // false: invalid or contradictory YAML; `text` is empty
  std::string text;  // reads to the same Config as the original, if that is valid
  Diagnostics diagnostics;
};

/// Rewrites upstream spellings, and the parts of a MindFormers file that have a counterpart.
/// Comments move with their keys; anchors are resolved; `include`, !override and ${NAME} stay.
/// Warnings list what is dropped. Messages use `name` as the name of the file.
Migrated migrate_config(std::string_view text, const std::string& name);

}  // namespace trainctl
