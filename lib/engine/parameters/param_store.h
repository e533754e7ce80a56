// Owns parameters, gradients and optimizer state of one rank in flat buffers, placed as the plan
// says (plan/ownership/parameter_places.h): the masters and optimizer values of the parts that the
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
    const OptimizerConfig* optimizer = nullptr;  // whose state is stored; no state if null
    bool training = true;                        // whether gradients are stored
    bool begun_by_products = false;              // some gradients are first written by products
    OwnershipTable ownership{};                  // this rank's ownership; all parameters if empty
  };
  /// `stage` must outlive the store; contents.optimizer is read only by the constructor.
  ParamStore(DeviceKind device, const StagePlan& stage, const Contents& contents);

  /// Initialises the parts that this rank owns from (seed, name of the parameter, index of the
  /// element in the whole parameter): the values are the same for every mesh.
  void initialise(const OpContext& context, std::uint64_t seed, const Mesh& mesh,
                  std::int64_t rank);
  /// Rounds the owned masters to the weights, where these stay on the rank and are not themselves
  /// masters.
  void refresh_weights(const OpContext& context) const;

  const std::vector<ParamSpec>& table() const { return stage_.parameters; }
  int index_of(const std::string& name) const { return index_.at(name); }
  const OwnershipTable& ownership() const { return contents_.ownership; }

  /// The weight for a layer, valid while the store lives. In training, its gradient lies in the
  /// store's memory, where the layer's products accumulate it.
  Weight weight(const std::string& name);
  /// The weight that the layer reads, whole. The weight of a block that is freed exists only while
  /// the block is gathered.
  Tensor resident(int parameter) const;
  /// Whether the weight stays on the rank, rather than in a block that is freed.
  bool stays(int parameter) const { return !place(parameter).freed; }
  /// The weights of a block that is a bucket split into equal slices, flat, in the compute type.
  Tensor block_weights(int block) const;

  /// All weights of a block that is freed, as bytes: on the device, and their copy on the host.
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
  /// Value number `state` (as in kept_states) that the optimizer keeps for the owned part, flat;
  /// empty if there is none.
  Tensor state(int parameter, int state) const;
  /// The average of the owned part, flat, fp32; empty if no average is kept.
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
  /// Whether the parameter's bucket is summed repeatedly, so that its sums have their own buffer.
  bool repeats(int parameter) const { return place(parameter).repeated; }
  /// The buffer in which layers accumulate gradients, in fp32.
  Tensor made_gradients() const { return slab_.at("gradients"); }
  /// At the start of a step: zeroes the gradients, except those that their first product writes.
  void begin_gradients(Stream& stream);
  /// The buffer that contains gradient(parameter).
  Tensor summed_gradients(int parameter) const {
    return slab_.at(repeats(parameter) ? "sums" : "gradients");
  }

  /// The size of a buffer or 0: "weights", "masters", "gradients", "sums", "state0" to "state2".
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
  Slab host_;                                    // freed weights between their uses
  std::vector<std::vector<DType>> state_types_;  // types of the kept states, by parameter
  double average_decay_ = 0;                     // no average is kept if 0
  std::unordered_map<std::string, int> index_;
  std::deque<bool> has_values_;  // Weight::has_values, by parameter
  std::vector<Slice> zeroed_;    // ranges of gradients that begin_gradients zeroes
};

/// The place of this rank's owned part in a tensor of a whole parameter.
inline Tensor part_in(const Tensor& whole, const Slice& part) {
  return whole.view({whole.numel()}).slice(part.begin, part.end);
}

// Checks that the ranks that hold the same part of a parameter have the same values: data-parallel
// replicas, tensor-parallel ranks that hold a whole parameter or share key and value heads, and the
// two copies of a tied embedding. It compares the weights that stay on the ranks, and the masters
// that each of these ranks updates.

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

// Gathers the whole model on rank 0, parameter by parameter, from the masters that all ranks own;
// for export.

/// Rank 0 requests one parameter after the other, and the other ranks send their parts. So no rank
/// holds more than its own parameters and one whole one. Uses only messages. The work of rank 0 on
/// a parameter may last longer than the other ranks wait: a thread of rank 0 tells them several
/// times per second that it still works. If a disk or a server does not answer rank 0
/// (while_others_wait), its process ends with ExitCode::io.
class WholeParams {
 public:
  /// `everyone`: the group of all ranks on host memory, used by no other object meanwhile. `work`:
  /// host memory to use; more is allocated if it is too small. All arguments must outlive this
  /// object, which rank 0 makes and uses on one thread.
  WholeParams(const Plan& plan, const ParamStore& store, Group& everyone, double deadline_seconds,
              std::span<std::byte> work = {});
  ~WholeParams();
  WholeParams(const WholeParams&) = delete;
  WholeParams& operator=(const WholeParams&) = delete;

  /// On rank 0: a whole parameter by its name, with the vocabulary's padding, in fp32 host memory;
  /// valid until the next call. Throws Error{peer} if a part does not come within the deadline.
  Tensor get(const std::string& name);
  /// On rank 0, the last call: ends give() on the other ranks.
  void end();
  /// On the other ranks: sends parts until rank 0 calls end(). Throws Error{peer} if rank 0 sends
  /// nothing within the deadline.
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
  std::map<std::string, std::vector<Part>> parameters_;  // the parameters by name, on rank 0
  Stream stream_{DeviceKind::cpu, "gather", Stream::Mode::run_inline};
  Slab own_;         // memory that `work` lacks
  Tensor whole_;     // [elements of the largest parameter]
  Tensor received_;  // [elements of the largest part of another rank]
  std::span<std::byte> rest_;
  std::unique_ptr<Signs> signs_;  // thread on rank 0, if there are other ranks
};

}  // namespace trainctl
