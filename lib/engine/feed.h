// Copies a micro-batch from the loader into the tensors that the kernels read.
#pragma once

#include <cstdint>

#include "data/batch.h"
#include "nn/pass.h"

namespace trainctl {

struct Share {              // of a micro-batch
  std::int64_t tokens = 0;  // that a rank works on
  std::int64_t replica = 0;
};

/// Copies as much as fits into `to`. Of a batch with more tokens than the share, which has the
/// micro-batches of all replicas in turn (dataset_strategy full_batch), that of the share's
/// replica.
void feed(const Batch& batch, const Share& share, const BatchTensors& to);

}  // namespace trainctl
