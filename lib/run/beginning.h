// The ranks of a run agree on the directory that they write and on the checkpoint to continue from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "comm/world.h"
#include "run/directory/lease.h"
#include "run/directory/run_dir.h"

namespace trainctl {

/// The start of a run: equal on all ranks, except the lease, which only rank 0 has.
struct Beginning {
  std::filesystem::path directory;
  Start start;
  std::unique_ptr<Lease> lease;
  Fence fence{};                    // fence of this session; on rank 0 it asks the lease
  ExitCode refused = ExitCode::ok;  // not ok: the run must not start, and rank 0 has printed why
};

/// Rank 0 takes the directory, which may take long, and decides (decide_start). Keeps the files of
/// an earlier run except unfinished ones. Collective. Throws Error{io} if a rank on another host
/// does not see the directory. The other arguments are those of decide_start.
Beginning agree_on_beginning(const Config& config, std::int64_t steps, const std::string& resume,
                             World& world, Group& everyone);

/// The configuration with which a command can continue the run in `directory`: output.dir is that
/// directory, and output.overwrite is off.
Config config_to_go_on(Config config, const std::filesystem::path& directory);

/// Rank 0 prepares the directory and writes config.yaml, plan.json and, unless it is empty,
/// layout.yaml. Every rank opens its log. Collective. Throws Error{io}.
void enter_directory(const Beginning& beginning, const std::string& config, const std::string& plan,
                     const std::string& layout, Group& everyone);

}  // namespace trainctl
