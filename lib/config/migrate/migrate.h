// A configuration rewritten with canonical keys only, in the schema's order.
#pragma once

#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/upstream/other_keys.h"

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

// `migrate --from`: another project's file as a configuration of ours. upstream/other_keys.h has
// the keys, migration.cpp the rules about several keys together and the defaults of each project.

/// Command lines and shell scripts (Megatron, llm.c), Python assignments (nanoGPT), TOML
/// (torchtitan), config.json or training arguments as JSON or YAML (Hugging Face). Each line of the
/// result says where it comes from. Warnings list what has no counterpart and what is missing; two
/// keys that contradict each other are an error.
Migrated migrate_from(Project project, std::string_view text, const std::string& name);

}  // namespace trainctl
