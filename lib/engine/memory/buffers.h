// The memory of a rank's passes, its copies on the host, the step state, and feeds for batches.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "data/batch.h"
#include "device/slab.h"
#include "device/stream.h"
#include "nn/layer.h"
#include "ops/context.h"
#include "plan/plan.h"
#include "plan/tables/layout.h"

namespace trainctl {

/// The activations and working memory of one rank, and the tensors that its layers keep on the
/// host, allocated once: exactly as the plan says, for steps with the most micro-batches. Steps
/// with fewer use other places in the same memory.
class Buffers {
 public:
  /// `stage` is the number of a stage of `plan`, which must outlive the buffers.
  Buffers(DeviceKind device, const Plan& plan, int stage);
  /// From now on places are those of `stage`: this stage in the plan or in one of Plan::smaller.
  void lay_out(const StagePlan& stage);
  /// From now on the tensors of `view` are those of a micro-batch with sequences of `length`
  /// tokens; each keeps its start.
  void set_length(int view, std::int64_t length);
  std::int64_t length(int view) const;  // seq_length until set
  /// The tensor of a row of the activation table for the micro-batch in `view`
  /// (plan/schedule/activation_slots.h), which must have that row. Empty for row -1.
  Tensor at(int view, int row) const;
  DeviceKind device() const { return slab_.device(); }
  std::int64_t bytes() const { return slab_.bytes().numel(); }
  std::int64_t host_bytes() const { return host_.bytes().numel(); }
  /// The context of ops on `stream`: kernels of its device, and the plan's scratch memory.
  OpContext context(Stream& stream) const;
  /// The table of each RoPE form of the model: [positions, size] fp32, filled.
  std::vector<Tensor> rope_tables() const;
  /// The table of each temperature of the model: [positions, head_dim] fp32, filled.
  std::vector<Tensor> temperature_tables() const;

 private:
  const Plan& plan_;
  int number_;  // number of the stage
  const StagePlan* stage_;
  std::map<std::int64_t, std::vector<Shape>> shapes_;  // result of shapes_at(), by sequence length
  std::vector<std::int64_t> lengths_;                  // sequence length of each view
  Slab slab_;
  Slab host_;
};

// The step state (ops/context.h): the copy that kernels read and write, and the host's copy. On the
// CPU there is a single copy.

class SharedState {
 public:
  explicit SharedState(DeviceKind device);

  /// The host's copy: the values of the last fetch, with changes by the host. Not to be used
  /// between send and fetch.
  StepState& host() const { return *host_; }
  /// The copy that kernels use, in device memory.
  StepState* of_kernels() const { return kernels_; }
  /// Enqueues the copy of the host's values to the device.
  void send(Stream& stream) const;
  /// Waits until everything on `stream` is done and the state is on the host. Throws Error{peer}
  /// after twice the deadline, when a device probably waits for another rank.
  void fetch(Stream& stream, double deadline_seconds) const;

 private:
  static Tensor bytes_of(const Slab& slab) { return slab.at("state"); }

  Slab on_host_, on_device_;  // the second is empty on the CPU
  StepState* host_ = nullptr;
  StepState* kernels_ = nullptr;
};

// Copies a micro-batch from the loader into the tensors that the kernels read.

struct Share {                 // the part of a micro-batch on a rank
  std::int64_t sequences = 0;  // number that a replica works on
  std::int64_t replica = 0;
  TokenPieces tokens{};          // the tokens of each context-parallel rank; its seq_length is
                                 // replaced by the length of a batch
  std::int64_t rank = 0;         // this rank's number along cp
  std::int64_t heads_ranks = 1;  // ranks that exchange heads; each has the queries of all
};

/// Fills the tensors of one pass.
class Feed {
 public:
  /// `to`: tensors of one device; empty tensors are not filled. `places`: host buffers per tensor,
  /// from which a device copies. run() throws Error{peer} if the device has not copied the previous
  /// batch within twice the deadline.
  Feed(const BatchTensors& to, double deadline_seconds, int places = 1);
  /// From now on fills `to`, with no more elements than the tensors of the constructor.
  void aim(const BatchTensors& to);

  /// Copies the share's part of the batch to the tensors. With dataset_strategy full_batch a batch
  /// holds the micro-batches of all replicas one after another; only those of the share's replica
  /// are copied. Work enqueued on `stream` afterwards finds the values; `batch` may be reused at
  /// once.
  void run(const Batch& batch, const Share& share, Stream& stream);
  /// The two halves of run() for a device: fill() writes the batch to a place that no copy is
  /// reading, and send() enqueues the copy from that place to the device.
  void fill(int place, const Batch& batch, const Share& share);
  void send(int place, Stream& stream);

  /// Bytes of page-locked memory; 0 on the CPU.
  std::int64_t host_bytes() const { return copy_.bytes().numel(); }

 private:
  BatchTensors to_;
  std::vector<BatchTensors> on_host_;  // host tensors by place; on the CPU equal to to_
  Slab copy_;
  Event copied_;  // the last copy from on_host_
  double deadline_;
};

}  // namespace trainctl
