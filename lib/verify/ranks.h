// The ranks that run a layout, as threads of this process or as processes of mpirun, and the
// verdict of what they found.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "base/file.h"
#include "comm/world.h"
#include "verify/findings.h"
#include "verify/verify.h"

namespace trainctl {

/// The inputs of one rank, and configuration and plan as they were before any fault.
struct VerifyInput {
  const Config& config;
  const Plan& plan;
  const Config& truth_config;
  const Plan& truth;
  const Faults& faults;
  double deadline_seconds;
};

/// Runs `body` on every rank of a layout. What each rank found until it ended, and why one failed,
/// goes into the verdict. With VerifiedLayout::job it is collective over that, every process gets
/// the same verdict, and a rank that fails throws Error{diverged}: the others cannot go on.
LayoutVerdict judge_ranks(const VerifiedLayout& layout, const Faults& faults,
                          const std::function<void(const VerifyInput&, World&, Findings&)>& body);

/// A folder that all ranks use, in TMPDIR, for the time in which rank 0 has this object. Collective
/// over `job`, which is null for a folder of this process alone. Throws Error{io}.
class JobFolder {
 public:
  explicit JobFolder(World* job);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::unique_ptr<TemporaryFolder> own_;  // of rank 0
  std::filesystem::path path_;
};

}  // namespace trainctl
