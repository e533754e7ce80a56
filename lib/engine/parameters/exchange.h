// Tensors that travel together in one call: from where they lie, or packed in a buffer.
#pragma once

#include <span>
#include <vector>

#include "comm/world.h"
#include "ops/context.h"

namespace trainctl {

inline Tensor flat(const Tensor& x) { return x.view({x.numel()}); }

/// A move between a tensor and its place in a buffer; casts where the types differ.
struct Move {
  Tensor to, from;
};

/// Enqueued one after the other on the context's stream, which the context must outlive.
void enqueue(const std::vector<Move>& moves, const OpContext& ops);

/// Flat values of which each rank of a group gets or gives one of `ranks` equal parts, in turn.
struct Divided {
  Tensor whole;
  Tensor part;  // this rank's
};

/// Places for several in one buffer, as a call over a group wants them: the parts of rank 0, one of
/// each tensor, then those of rank 1 and so on. `buffer` must be as long as all of them.
struct Packed {
  Divided all;
  std::vector<Move> in, out;  // what is sent, and what has come
};

/// For a reduce-scatter: all is moved in, the own parts out.
Packed pack_scatter(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank);
/// For an all-gather: the own parts are moved in, all out.
Packed pack_gather(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank);

}  // namespace trainctl
