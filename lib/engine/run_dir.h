// The folder that a run writes: config.yaml (resolved), plan.json, metrics.jsonl, rank-N.log and
// the weights.
#pragma once

#include <filesystem>
#include <string>

namespace trainctl {

/// Makes the folder, checks that it can be written, and removes what an earlier run left there if
/// `overwrite` (only files that a run writes). Throws Error{io} with the path and the system's
/// reason, or Error{usage} when a run is there and must not be replaced.
void prepare_run_dir(const std::filesystem::path& directory, bool overwrite);

/// Writes a file through a temporary one, so that it is whole or not there. Throws Error{io}.
void write_whole_file(const std::filesystem::path& path, const std::string& text);

}  // namespace trainctl
