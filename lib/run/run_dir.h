// The folder that a run writes: config.yaml (resolved), plan.json, metrics.jsonl, rank-N.log and
// the weights.
#pragma once

#include <filesystem>

namespace trainctl {

/// Makes the folder, checks that it can be written, and removes what an earlier run left there if
/// `overwrite` (only files that a run writes). Throws Error{io} with the path and the system's
/// reason, or Error{usage} when a run is there and must not be replaced.
void prepare_run_dir(const std::filesystem::path& directory, bool overwrite);

}  // namespace trainctl
