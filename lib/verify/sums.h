// The sums that ranks form, compared with sums in double of their inputs: gradients, from the
// values that each rank had made when the backward pass of a bucket ended; and the sums of
// collectives of host memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/world.h"
#include "engine/parameters/param_store.h"
#include "plan/plan.h"
#include "verify/findings.h"

namespace trainctl {

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
