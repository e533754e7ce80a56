// Owns parameters, gradients and optimizer state of one rank in flat buffers, as the plan places
// them (plan/ownership/parameter_places.h): the masters and the optimizer's values of what the
// rank updates, and the weights that its layers read. Layers get views; optimizer, exchanges,
// checkpoints and export iterate over the parameter table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/group.h"
#include "comm/world.h"
#include "device/slab.h"
#include "nn/layer.h"
#include "ops/context.h"
#include "plan/ownership/parameter_places.h"
#include "plan/plan.h"

namespace trainctl {

class ParamStore {
 public:
  struct Contents {
    DType compute = DType::f32;
    DType sums = DType::f32;                     // type of gradients that are summed repeatedly
    const OptimizerConfig* optimizer = nullptr;  // whose values are kept; nullptr: none
    bool training = true;                        // false: no gradients
    bool begun_by_products = false;  // begin_gradients leaves some to their first products
    OwnershipTable ownership{};      // of this rank; empty: it owns every parameter
  };
  /// The parameters of `stage`, which must outlive the store. The optimizer is only read here.
  ParamStore(DeviceKind device, const StagePlan& stage, const Contents& contents);

  /// Initialises what this rank owns from (seed, name of the parameter, index of the element in the
  /// whole parameter): the values are the same for every mesh.
  void initialise(const OpContext& context, std::uint64_t seed, const Mesh& mesh,
                  std::int64_t rank);
  /// Rounds the owned masters to the weights, where these stay on the rank and are not themselves
  /// masters.
  void refresh_weights(const OpContext& context) const;

  const std::vector<ParamSpec>& table() const { return stage_.parameters; }
  int index_of(const std::string& name) const { return index_.at(name); }
  const OwnershipTable& ownership() const { return contents_.ownership; }

  /// The weight for a layer. Its gradient is the memory that products are added to. Valid while the
  /// store lives.
  Weight weight(const std::string& name);
  /// The weight that the layer reads, whole. The weight of a block that is freed exists only while
  /// the block is gathered.
  Tensor resident(int parameter) const;
  /// Whether the weight stays on the rank, rather than in a block that is freed.
  bool stays(int parameter) const { return !place(parameter).freed; }
  /// The weights of a block that is a bucket split into equal slices, flat, in the compute type.
  Tensor block_weights(int block) const;

  /// All weights of a block that is freed, as bytes, and their place on the host.
  Tensor block_bytes(int block) const;
  Tensor host_block(int block) const;
  std::int64_t host_bytes() const { return places_.host_bytes; }

  /// The part of a parameter that this rank updates.
  Slice owned(int parameter) const {
    return ownership().parameters[static_cast<std::size_t>(parameter)].owned;
  }
  /// The master of the owned part, in ParamSpec::master: flat, but in the parameter's shape if it
  /// is whole.
  Tensor master(int parameter) const;
  /// The owned part of the weight in 16 bits, flat; empty if the weight is the master or does not
  /// stay.
  Tensor rounded(int parameter) const;
  /// The optimizer's values number `state` (kept_states) of the owned part, flat; empty if there
  /// is none.
  Tensor state(int parameter, int state) const;
  /// The average of the owned part, flat, fp32; empty if none is kept.
  Tensor average(int parameter) const;
  double average_decay() const { return average_decay_; }
  /// Sets the averages to the masters. Waits until that is done.
  void begin_averages() const;

  /// The part of a gradient that is complete after its bucket's sums (Ownership::summed): flat, but
  /// in the parameter's shape if it is whole.
  Tensor gradient(int parameter) const;
  /// The gradient of the owned part, flat.
  Tensor owned_gradient(int parameter) const;
  /// The gradient that the layers of this rank make, flat and whole.
  Tensor made_gradient(int parameter) const;
  /// The gradients of a bucket, including the gaps between them.
  Tensor made_bucket(int bucket) const;
  /// Whether a bucket is summed repeatedly: what is made then moves to where the sum is.
  bool repeats(int parameter) const { return place(parameter).repeated; }
  /// Where gradients are made, in fp32.
  Tensor made_gradients() const { return slab_.at("gradients"); }
  /// As a step begins: sets them to 0, except those that their first product writes.
  void begin_gradients(Stream& stream);
  /// The memory that gradient(parameter) is part of.
  Tensor summed_gradients(int parameter) const {
    return slab_.at(repeats(parameter) ? "sums" : "gradients");
  }

  /// Names of existing buffers: "weights", "masters", "gradients", "sums", "state0" to "state2".
  std::int64_t bytes(const std::string& buffer) const {
    return slab_.contains(buffer) ? slab_.at(buffer).bytes() : 0;
  }

 private:
  const ParameterPlace& place(int parameter) const {
    return places_.parameters[static_cast<std::size_t>(parameter)];
  }
  bool products_begin(int parameter) const;
  std::vector<Slice> between_products() const;
  /// Elements [begin, begin + part.length()) of a buffer, which are `part` of the parameter.
  Tensor part_of(const std::string& buffer, std::int64_t begin, int parameter,
                 const Slice& part) const;

  const StagePlan& stage_;
  Contents contents_;
  ParameterPlaces places_;
  StatePlaces states_;
  Slab slab_;
  Slab host_;                                    // weights that are there between their uses
  std::vector<std::vector<DType>> state_types_;  // by parameter
  double average_decay_ = 0;                     // 0: no average is kept
  std::unordered_map<std::string, int> index_;
  std::deque<bool> has_values_;  // by parameter: Weight::has_values
  std::vector<Slice> zeroed_;    // of the made gradients: not those that products begin
};

/// The place of this rank's owned part in a tensor of a whole parameter.
inline Tensor part_in(const Tensor& whole, const Slice& part) {
  return whole.view({whole.numel()}).slice(part.begin, part.end);
}

// Checks that the ranks that hold the same part of a parameter have the same values: data-parallel
// replicas, tensor-parallel ranks that hold a whole parameter or share key and value heads, and the
// two copies of a tied embedding. Compared are the weights, as far as they stay on the ranks, and
// the masters of what each of these ranks updates.

class ReplicaCheck {
 public:
  /// Collective over all ranks: forms its own groups. `plan` and `store` must outlive this object.
  ReplicaCheck(const Plan& plan, const ParamStore& store, World& world);
  ~ReplicaCheck();

  /// Compares hashes. Throws Error{peer} naming the first parameter that differs and the ranks that
  /// disagree with the first that holds it. Collective; no other communication may be in flight.
  void run(std::int64_t completed_steps) const;

 private:
  struct Shared;
  std::uint64_t hash_of(std::span<const int> parameters) const;

  const ParamStore& store_;
  const std::vector<OptimizerShard>& shards_;
  std::vector<Shared> shared_;
};

/// All ranks, ascending, that hold the same elements of `parameter` as `rank`.
std::vector<int> holders_of(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank);

// The whole model on rank 0, parameter by parameter, from the masters that all ranks own; for
// export.

/// Rank 0 asks for one parameter after the other; meanwhile all others give their parts. So no rank
/// holds more than its own parameters and one whole one. Uses only messages. The work of rank 0 on
/// a parameter may last longer than the others may wait: a thread of rank 0 tells them several
/// times per second that it still works. If a disk or a server does not answer rank 0
/// (while_others_wait), its process ends with ExitCode::io.
class WholeParams {
 public:
  /// `everyone`: the group of all ranks, of host memory, which nobody else uses meanwhile. `work`:
  /// host memory to use; what is missing there is allocated. All arguments must outlive this
  /// object, which rank 0 makes and uses on one thread.
  WholeParams(const Plan& plan, const ParamStore& store, Group& everyone, double deadline_seconds,
              std::span<std::byte> work = {});
  ~WholeParams();
  WholeParams(const WholeParams&) = delete;
  WholeParams& operator=(const WholeParams&) = delete;

  /// On rank 0: a whole parameter by its name, with the vocabulary's padding, in fp32 host memory;
  /// valid until the next call. Throws Error{peer} if a part does not come within the deadline.
  Tensor get(const std::string& name);
  /// On rank 0: lets the others go on. The last call.
  void end();
  /// On the other ranks: gives parts until rank 0 ends. Throws Error{peer} if it says nothing
  /// within the deadline.
  void give();

  /// The unused part of `work`.
  std::span<std::byte> rest() const { return rest_; }

 private:
  struct Part;
  class Signs;
  void find_parts();
  void take_memory(std::span<std::byte> work);
  const ParamSpec& spec_of(const Part& part) const;
  void place(const Part& part, const Tensor& values, const Tensor& whole) const;
  void finish(const Event& event, const char* what, const std::string& name) const;

  const Plan& plan_;
  const ParamStore& store_;
  Group& everyone_;
  double deadline_;
  std::map<std::string, std::vector<Part>> parameters_;  // rank 0
  Stream stream_{DeviceKind::cpu, "gather", Stream::Mode::run_inline};
  Slab own_;         // where `work` is too small
  Tensor whole_;     // [elements of the largest parameter]
  Tensor received_;  // [elements of the largest part of another rank]
  std::span<std::byte> rest_;
  std::unique_ptr<Signs> signs_;  // of rank 0, where there are others
};

}  // namespace trainctl
