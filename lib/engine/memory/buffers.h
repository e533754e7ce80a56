// The memory of a rank's passes, copies of it on the host, the step state, and the copies of
// batches.
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
/// host, allocated once: exactly as the plan says, for the steps with most micro-batches. Those
/// with fewer have other places in it.
class Buffers {
 public:
  /// `plan` has stage number `stage`, and must outlive the buffers.
  Buffers(DeviceKind device, const Plan& plan, int stage);
  /// From now on the places are those of `stage`, the same of Plan::smaller or of the plan itself.
  void lay_out(const StagePlan& stage);
  /// From now on the rows of `view` are those of a micro-batch with `length` tokens of each
  /// sequence, at the start of their places.
  void set_length(int view, std::int64_t length);
  std::int64_t length(int view) const;  // seq_length until set
  /// A row of the activation table, for a micro-batch in `view` (plan/schedule/activation_slots.h),
  /// which has it. Empty for row -1.
  Tensor at(int view, int row) const;
  DeviceKind device() const { return slab_.device(); }
  std::int64_t bytes() const { return slab_.bytes().numel(); }
  std::int64_t host_bytes() const { return host_.bytes().numel(); }
  /// The context in which ops run on `stream`: the kernels of its device, and scratch_bytes().
  OpContext context(Stream& stream) const;
  /// The tables of each RoPE form of the model: [positions, size] fp32, filled.
  std::vector<Tensor> rope_tables() const;
  /// The table of each temperature of the model: [positions, head_dim] fp32, filled.
  std::vector<Tensor> temperature_tables() const;

 private:
  const Plan& plan_;
  int number_;  // of the stage
  const StagePlan* stage_;
  std::map<std::int64_t, std::vector<Shape>> shapes_;  // by length: see shapes_at
  std::vector<std::int64_t> lengths_;                  // by view
  Slab slab_;
  Slab host_;
};

// The step state (ops/context.h) where kernels read and write it, and the host's copy. On the
// CPU they are one.

class SharedState {
 public:
  explicit SharedState(DeviceKind device);

  /// As of the last fetch, with what the host has changed since. Not to be used between send and
  /// fetch.
  StepState& host() const { return *host_; }
  /// Memory of the device.
  StepState* of_kernels() const { return kernels_; }
  /// Enqueues the copy of the host's values to the device.
  void send(Stream& stream) const;
  /// Waits until everything on `stream` is done and its values are on the host. Throws Error{peer}
  /// after twice the deadline: then a device waits for another rank.
  void fetch(Stream& stream, double deadline_seconds) const;

 private:
  static Tensor bytes_of(const Slab& slab) { return slab.at("state"); }

  Slab on_host_, on_device_;  // the second is empty on the CPU
  StepState* host_ = nullptr;
  StepState* kernels_ = nullptr;
};

// Copies a micro-batch from the loader into the tensors that the kernels read.

struct Share {                 // of a micro-batch
  std::int64_t sequences = 0;  // that a replica works on
  std::int64_t replica = 0;
  TokenPieces tokens{};          // which of their tokens each context-parallel rank has, for the
                                 // rows of a batch as long as they are
  std::int64_t rank = 0;         // this one
  std::int64_t heads_ranks = 1;  // that exchange heads: each has the queries of all of them
};

/// Fills the tensors of one pass.
class Feed {
 public:
  /// `to`: tensors of one device. Those that are empty have no use for the pass. run() throws
  /// Error{peer} if the device has not taken the batch before within twice the deadline. A device
  /// copies from one of `places` in the host's memory.
  Feed(const BatchTensors& to, double deadline_seconds, int places = 1);
  /// From now on into these, of no more elements than the first.
  void aim(const BatchTensors& to);

  /// Copies the part of the batch that fits. With dataset_strategy full_batch a batch holds the
  /// micro-batches of all replicas one after another; then only those of the share's replica are
  /// copied. Work that is enqueued on `stream` afterwards finds the values; the batch is free
  /// again.
  void run(const Batch& batch, const Share& share, Stream& stream);
  /// Its two halves, for a device: into a place, from which nothing is copied now; and from
  /// there.
  void fill(int place, const Batch& batch, const Share& share);
  void send(int place, Stream& stream);

  /// Bytes of its page-locked memory; 0 on the CPU.
  std::int64_t host_bytes() const { return copy_.bytes().numel(); }

 private:
  BatchTensors to_;
  std::vector<BatchTensors> on_host_;  // by place; on the CPU the same as to_
  Slab copy_;
  Event copied_;  // from there
  double deadline_;
};

}  // namespace trainctl
