// Owns parameters, gradients and optimizer state of one rank in flat buffers, as the plan places
// them. Layers get views; optimizer, reduction and export iterate over the parameter table.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/slab.h"
#include "nn/weight.h"
#include "ops/context.h"
#include "plan/ownership/ownership.h"

namespace trainctl {

class ParamStore {
 public:
  struct Contents {
    DType compute = DType::f32;
    int states = 0;              // fp32 optimizer values per parameter (0 to 2)
    bool training = true;        // false: no gradients
    OwnershipTable ownership{};  // of this rank; may be empty without optimizer states
  };
  /// The parameters of `stage`, which must outlive the store.
  ParamStore(DeviceKind device, const StagePlan& stage, const Contents& contents);

  /// Initialises every shard from (seed, name of the parameter, index of the element in the whole
  /// parameter): the values are the same for every mesh.
  void initialise(const OpContext& context, std::uint64_t seed, const Mesh& mesh,
                  std::int64_t rank);
  /// Rounds the masters to the compute copy; does nothing in fp32.
  void refresh_compute(const OpContext& context) const;

  const std::vector<ParamSpec>& table() const { return stage_.parameters; }
  Weight weight(const std::string& name) const;
  Tensor master(int parameter) const { return piece("parameters", parameter); }
  Tensor gradient(int parameter) const { return piece("gradients", parameter); }
  /// The bf16 or fp16 copy, or an empty tensor if the kernels read the master.
  Tensor compute(int parameter) const;
  const OwnershipTable& ownership() const { return contents_.ownership; }
  /// The part of a parameter that this rank updates, and its optimizer values number `state`, flat;
  /// empty if this rank updates nothing.
  Slice owned(int parameter) const {
    return ownership().parameters[static_cast<std::size_t>(parameter)].owned;
  }
  Tensor state(int parameter, int state) const;
  Tensor masters() const { return slab_.at("parameters"); }
  Tensor gradients() const { return slab_.at("gradients"); }
  /// The gradients and the masters of a bucket, flat, including the gaps between them.
  Tensor bucket(int index) const { return stretch("gradients", index); }
  Tensor bucket_masters(int index) const { return stretch("parameters", index); }
  /// Names of existing buffers: "parameters", "compute", "gradients", "state0", "state1".
  std::int64_t bytes(const std::string& buffer) const {
    return slab_.contains(buffer) ? slab_.at(buffer).bytes() : 0;
  }
  int index_of(const std::string& name) const { return index_.at(name); }

 private:
  Tensor piece(const std::string& buffer, int parameter) const;
  Tensor stretch(const std::string& buffer, int bucket) const;

  const StagePlan& stage_;
  Contents contents_;
  Slab slab_;
  std::unordered_map<std::string, int> index_;
};

}  // namespace trainctl
