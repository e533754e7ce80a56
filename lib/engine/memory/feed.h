// Copies a micro-batch from the loader into the tensors that the kernels read.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batch.h"
#include "device/slab.h"
#include "nn/layer.h"
#include "plan/tables/layout.h"

namespace trainctl {

struct Share {                 // of a micro-batch
  std::int64_t sequences = 0;  // that a replica works on
  std::int64_t replica = 0;
  TokenLayout tokens{};          // which of their tokens each context-parallel rank has, for the
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

  /// Copies as much as fits. Of a batch with more sequences than the share, which has the
  /// micro-batches of all replicas in turn (dataset_strategy full_batch), those of the share's
  /// replica. What is enqueued on `stream` afterwards finds the values; the batch is free again.
  void run(const Batch& batch, const Share& share, Stream& stream);
  /// Its two halves, for a device: into a place, from which nothing is copied now; and from
  /// there.
  void fill(int place, const Batch& batch, const Share& share);
  void send(int place, Stream& stream);

  /// Of its places, page-locked; 0 on the CPU.
  std::int64_t host_bytes() const { return copy_.bytes().numel(); }

 private:
  BatchTensors to_;
  std::vector<BatchTensors> on_host_;  // by place; on the CPU the same as to_
  Slab copy_;
  Event copied_;  // from there
  double deadline_;
};

}  // namespace trainctl
