// Tensors that travel together in one call, either from their own memory or packed in a buffer.
#pragma once

#include <span>
#include <vector>

#include "comm/world.h"
#include "ops/context.h"

namespace trainctl {

inline Tensor flat(const Tensor& x) { return x.view({x.numel()}); }

/// A copy between a tensor and its place in a buffer; casts if the types differ.
struct Move {
  Tensor to, from;
};

/// Enqueues the copies in order on the stream of the context, which must outlive them.
void enqueue(std::span<const Move> moves, const OpContext& ops);

/// Flat values divided into `ranks` equal parts; each rank of a group receives or supplies one.
struct Divided {
  Tensor whole;
  Tensor part;  // this rank's
};

/// Places for several parameters in one buffer, ordered as a call over a group needs them: the
/// parts of rank 0, one of each tensor, then those of rank 1 and so on. `buffer` must hold all of
/// them.
struct Packed {
  Divided all;
  std::vector<Move> in, out;  // before sending, and after receiving
};

/// For a reduce-scatter: everything is copied in, the rank's own parts are copied out.
Packed pack_scatter(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank);
/// For an all-gather: the rank's own parts are copied in, everything is copied out.
Packed pack_gather(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank);

}  // namespace trainctl
