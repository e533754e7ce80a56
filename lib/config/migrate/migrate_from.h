// `migrate --from`: another project's file as a configuration of ours. The keys are in
// upstream/other_keys.h; what follows from several of them, and that project's defaults, in
// project_rules.cpp.
#pragma once

#include <string>
#include <string_view>

#include "config/migrate/migrate.h"
#include "config/upstream/other_keys.h"

namespace trainctl {

/// Command lines and shell scripts (Megatron, llm.c), Python assignments (nanoGPT), TOML
/// (torchtitan), config.json or training arguments as JSON or YAML (Hugging Face). Each line of the
/// result says where it comes from. Warnings list what has no counterpart and what is missing; two
/// keys that contradict each other are an error.
Migrated migrate_from(Project project, std::string_view text, const std::string& name);

}  // namespace trainctl
