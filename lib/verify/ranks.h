// Runs the ranks of a layout, as threads of this process or as processes of mpirun, and combines
// their findings to a verdict.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/file.h"
#include "comm/world.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"
#include "verify/findings.h"
#include "verify/verify.h"

namespace trainctl {

/// The inputs of one rank. truth_config and truth are configuration and plan before any fault.
struct VerifyInput {
  const Config& config;
  const Plan& plan;
  const Config& truth_config;
  const Plan& truth;
  const Faults& faults;
  double deadline_seconds;
};

/// Runs `body` on every rank of a layout. The verdict has each rank's findings, and the reason if
/// one failed. With VerifiedLayout::job the call is collective over the job, every process gets the
/// same verdict, and a failing rank throws Error{diverged}, since others cannot continue.
LayoutVerdict judge_ranks(const VerifiedLayout& layout, const Faults& faults,
                          const std::function<void(const VerifyInput&, World&, Findings&)>& body);

/// A folder in TMPDIR that all ranks use, removed with rank 0's object. Collective over `job`,
/// which is null for a folder of this process alone. Throws Error{io}.
class JobFolder {
 public:
  explicit JobFolder(World* job);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::unique_ptr<TemporaryFolder> own_;  // exists only on rank 0
  std::filesystem::path path_;
};

// Compares sums over ranks with sums of the same inputs in double: sums of gradients, whose inputs
// are each rank's gradients at the end of a bucket's backward pass, and sums in collectives of host
// memory.

/// The bound of the error relative to the largest sum of absolute values, if gradients are summed
/// and sent in fp32.
inline constexpr double sum_bound = 1e-6;

class GradientSums {
 public:
  /// Makes the groups of the sums. Collective over all ranks. `plan` must outlive this object.
  GradientSums(const Plan& plan, World& world);

  void begin_step();
  /// Copies this rank's gradients of a bucket, before the bucket's sum starts.
  void keep(const ParamStore& store, int bucket);
  /// Called when all buckets are summed. Collective over the ranks of each sum.
  void compare(const ParamStore& store, Findings& findings, std::int64_t step);

 private:
  std::vector<int> ranks_of(const ParamSpec& spec) const;
  std::vector<double> sum_of_parts(int parameter, std::vector<double>& sizes);

  const Plan& plan_;
  int rank_;
  Stream stream_;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups_;
  std::vector<Group*> group_of_;           // one per parameter; null if only this rank has it
  std::vector<std::vector<float>> parts_;  // this rank's inputs, by parameter
  std::vector<float> all_;                 // inputs of all ranks of a group
};

/// A world that checks the sums of its groups: every rank that gets the sum of a collective
/// compares it with the sum of the inputs in double, and with the sum in rank order, which must be
/// bit-identical (comm/group.h). Ranks exchange the inputs over additional groups. Only for host
/// memory.
class SumWorld : public ForwardingWorld {
 public:
  /// `world` and `mesh` must outlive this object.
  SumWorld(World& world, const Mesh& mesh);

  /// Begins a step, to which later findings belong.
  void begin_step(std::int64_t step);
  /// Merges the findings so far into `findings`.
  void tell(Findings& findings);

  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override;

  /// The sum that this rank got, and the inputs of all ranks.
  struct Sum;
  void compare(const Sum& sum);

 private:
  std::mutex mutex_;  // guards the members below
  std::int64_t step_ = 0;
  Findings findings_;
};

}  // namespace trainctl
