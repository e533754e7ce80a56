// A micro-batch on its way from the loader into the tensors that the kernels read.
#pragma once

#include <cstdint>

#include "data/batch.h"
#include "nn/pass.h"

namespace trainctl {

struct Share {              // of a micro-batch
  std::int64_t tokens = 0;  // that a rank works on
  std::int64_t replica = 0;
};

/// Copies what `to` has room for: of a batch with more tokens than the share, the micro-batches of
/// all replicas one after the other (dataset_strategy full_batch), those of the share's replica.
void feed(const Batch& batch, const Share& share, const BatchTensors& to);

}  // namespace trainctl
