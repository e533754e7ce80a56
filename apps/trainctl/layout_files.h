// Strategy and group files on disk: parallel.strategy_ckpt_config and
// parallel.group_ckpt_save_file. Their contents are plan/layout_file.h and plan/group_file.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/config.h"
#include "config/diagnostics.h"
#include "engine/run.h"
#include "plan/plan.h"

namespace trainctl {

/// Reads load_file, where one is named, and compares it with the plan. Adds "strategy-file" for a
/// file that cannot be read, and what compare_layouts finds.
void check_layout_file(const Config& config, const Plan& plan, const SourceMap& sources,
                       Diagnostics& diagnostics);

/// Writes save_file and the group file of `rank`, where they are named. Throws Error{io}, or
/// Error{usage} if there is no such rank.
void write_layout_files(const Config& config, const Plan& plan, std::int64_t rank);

/// What train does before the ranks meet: the first rank writes save_file, each rank its group
/// file. Returns the exit code if the run cannot start, with the reasons printed.
std::optional<int> prepare_layout_files(const TrainRequest& request);

/// "groups.pb" -> "groups-rank3.pb"; without a suffix at the end.
std::string name_for_rank(const std::string& file, std::int64_t rank);

}  // namespace trainctl
