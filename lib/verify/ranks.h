// The ranks that run a layout, as threads of this process or as processes of mpirun, and the
// verdict of what they found.
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

// The sums that ranks form, compared with sums in double of their inputs: gradients, from the
// values that each rank had made when the backward pass of a bucket ended; and the sums of
// collectives of host memory.

/// The bound relative to the largest sum of absolute values, where gradients are added up and sent
/// in fp32.
inline constexpr double sum_bound = 1e-6;

class GradientSums {
 public:
  /// Collective over all ranks. `plan` must outlive this object.
  GradientSums(const Plan& plan, World& world);

  void begin_step();
  /// Before a bucket's sum starts: takes in what this rank has made of its gradients.
  void keep(const ParamStore& store, int bucket);
  /// When all are summed. Collective over the ranks that a sum is over.
  void compare(const ParamStore& store, Findings& findings, std::int64_t step);

 private:
  std::vector<int> ranks_of(const ParamSpec& spec) const;
  std::vector<double> sum_of_parts(int parameter, std::vector<double>& sizes);

  const Plan& plan_;
  int rank_;
  Stream stream_;
  std::map<std::vector<int>, std::unique_ptr<Group>> groups_;
  std::vector<Group*> group_of_;           // by parameter; null for one of this rank alone
  std::vector<std::vector<float>> parts_;  // the same
  std::vector<float> all_;                 // of all ranks of a group
};

/// A world that looks at what its groups add up: each sum of a collective is compared, on every
/// rank that gets it, with the sum in double of what the ranks gave, and with the sum in rank order
/// that all ranks must have to the bit (comm/group.h). The ranks show each other what they give in
/// groups of their own. For host memory.
class SumWorld : public ForwardingWorld {
 public:
  /// `world`, and the mesh of `findings`, must outlive this one.
  SumWorld(World& world, const Mesh& mesh);

  /// Begins a step: findings from now on belong to it.
  void begin_step(std::int64_t step);
  /// Adds what was found to `findings`.
  void tell(Findings& findings);

  std::unique_ptr<Group> group(const std::string& name, std::span<const int> ranks) override;

  /// The sum that a rank got, and the inputs of all ranks.
  struct Sum;
  void compare(const Sum& sum);

 private:
  std::mutex mutex_;  // of the rest
  std::int64_t step_ = 0;
  Findings findings_;
};

}  // namespace trainctl
