// Owns parameters, gradients and optimizer state of one rank: flat buffers laid out by the plan.
// Layers receive views; the optimizer, the reduction and the export walk the parameter table.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "device/slab.h"
#include "nn/weight.h"
#include "ops/context.h"
#include "plan/plan.h"

namespace trainctl {

class ParamStore {
 public:
  /// `states`: fp32 optimizer values per parameter (0 to 2). With `training` false there are no
  /// gradients.
  ParamStore(DeviceKind device, const Plan& plan, int states, bool training);

  /// Fills every parameter from (seed, its name, element index).
  void initialise(const OpContext& context, std::uint64_t seed);
  /// Rounds the masters to the compute copy; nothing to do in fp32.
  void refresh_compute(const OpContext& context) const;

  const std::vector<ParamSpec>& table() const { return plan_.parameters; }
  Weight weight(const std::string& name) const;
  Tensor master(int parameter) const { return piece("parameters", parameter); }
  Tensor gradient(int parameter) const { return piece("gradients", parameter); }
  /// The bf16 copy, or an empty tensor where the kernels read the master.
  Tensor compute(int parameter) const;
  /// Optimizer value `state` of a parameter.
  Tensor state(int parameter, int state) const;
  Tensor gradients() const { return slab_.at("gradients"); }
  Tensor bucket(int index) const;
  int index_of(const std::string& name) const { return index_.at(name); }

 private:
  Tensor piece(const std::string& buffer, int parameter) const;

  const Plan& plan_;
  bool training_;
  Slab slab_;
  std::unordered_map<std::string, int> index_;
};

}  // namespace trainctl
