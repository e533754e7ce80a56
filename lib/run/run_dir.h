// The directory of a run: config.yaml (resolved), plan.json, metrics.jsonl, rank-N.log and
// the weights.
#pragma once

#include <filesystem>

namespace trainctl {

/// Creates the directory, checks that it is writable, and with `overwrite` removes the files of an
/// earlier run (only files that a run writes). Throws Error{io} with the path and the system's
/// reason, or Error{usage} if it holds a run that must not be replaced.
void prepare_run_dir(const std::filesystem::path& directory, bool overwrite);

}  // namespace trainctl
