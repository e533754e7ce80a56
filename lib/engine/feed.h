// Copies a micro-batch from the loader into the tensors that the kernels read.
#pragma once

#include <cstdint>

#include "data/batch.h"
#include "nn/exchange/pass.h"
#include "plan/tables/token_layout.h"

namespace trainctl {

struct Share {                 // of a micro-batch
  std::int64_t sequences = 0;  // that a replica works on
  std::int64_t replica = 0;
  TokenLayout tokens{};          // which of their tokens each context-parallel rank has, for the
                                 // rows of a batch as long as they are
  std::int64_t rank = 0;         // this one
  std::int64_t heads_ranks = 1;  // that exchange heads: each has the queries of all of them
};

/// Copies as much as fits into `to`. Of a batch with more sequences than the share, which has the
/// micro-batches of all replicas in turn (dataset_strategy full_batch), those of the share's
/// replica.
void feed(const Batch& batch, const Share& share, const BatchTensors& to);

}  // namespace trainctl
