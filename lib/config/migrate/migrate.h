// Rewrites a configuration with canonical keys only, in the schema's order.
#pragma once

#include <string>
#include <string_view>

#include "config/report/diagnostics.h"
#include "config/upstream/other_keys.h"

namespace trainctl {

struct Migrated {
  bool ok = false;   // false for invalid or contradictory YAML; `text` is then empty
  std::string text;  // reads as the same Config as the original, if that is valid
  Diagnostics diagnostics;
};

/// Replaces upstream spellings by canonical keys, and MindFormers sections by ours where they have
/// a counterpart. Comments move with their keys; anchors are resolved; `include`, !override and
/// ${NAME} stay. Warnings list dropped keys. Messages use `name` as the name of the file.
Migrated migrate_config(std::string_view text, const std::string& name);

// `migrate --from`: converts another project's file. upstream/other_keys.h has the keys,
// migration.cpp the rules about several keys together and the defaults of each project.

/// Reads command lines and shell scripts (Megatron, llm.c), Python assignments (nanoGPT), TOML
/// (torchtitan), config.json or training arguments as JSON or YAML (Hugging Face). Each line of the
/// result names its source. Warnings list keys without a counterpart and missing values; two
/// contradictory keys are an error.
Migrated migrate_from(Project project, std::string_view text, const std::string& name);

}  // namespace trainctl
