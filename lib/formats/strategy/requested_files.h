// Strategy and group files on disk: parallel.strategy_ckpt_config and
// parallel.group_ckpt_save_file. Their contents are plan/layout_file.h and plan/group_file.h.
#pragma once

#include <cstdint>
#include <string>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// Reads load_file, where one is named, and compares it with the plan. Adds "strategy-file" for a
/// file that cannot be read, and what compare_layouts finds.
void check_layout_file(const Config& config, const Plan& plan, const SourceMap& sources,
                       Diagnostics& diagnostics);

/// Writes save_file and the group file of `rank`, where they are named. Throws Error{io}, or
/// Error{usage} if there is no such rank.
void write_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

/// What a run's rank writes: the first rank save_file, every rank its group file under a name of
/// its own, "groups.pb" -> "groups-rank3.pb".
void write_own_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

}  // namespace trainctl
