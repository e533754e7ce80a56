#include "engine/parameters/exchange.h"

#include "ops/elementwise.h"

namespace trainctl {

namespace {

/// Calls visit(its place in the buffer, values of the tensor) for each rank's part of each tensor.
template <class Visit>
void for_each_part(std::span<const Divided> tensors, const Tensor& buffer, int ranks, Visit visit) {
  std::int64_t end = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Divided& one : tensors) {
      const std::int64_t length = one.part.numel();
      visit(rank, buffer.slice(end, end + length),
            one.whole.slice(rank * length, (rank + 1) * length));
      end += length;
    }
  }
}

Divided places_of(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank) {
  std::int64_t length = 0;
  for (const Divided& one : tensors) length += one.part.numel();
  return {buffer.slice(0, ranks * length), buffer.slice(rank * length, (rank + 1) * length)};
}

}  // namespace

void enqueue(std::span<const Move> moves, const OpContext& ops) {
  for (const Move& move : moves) {
    if (move.to.dtype == move.from.dtype) {
      ops.stream->copy(move.to, move.from);
    } else {
      in_order(ops, [&ops, move] { cast(ops, {.x = move.from, .y = move.to}); });
    }
  }
}

Packed pack_scatter(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank) {
  Packed packed{.all = places_of(tensors, buffer, ranks, rank), .in = {}, .out = {}};
  if (tensors.size() == 1) {  // its parts lie one after the other as it is
    packed.in.push_back({packed.all.whole, tensors[0].whole});
    packed.out.push_back({tensors[0].part, packed.all.part});
    return packed;
  }
  for_each_part(tensors, buffer, ranks, [&](int owner, const Tensor& place, const Tensor& values) {
    packed.in.push_back({place, values});
    if (owner == rank) packed.out.push_back({values, place});
  });
  return packed;
}

Packed pack_gather(std::span<const Divided> tensors, const Tensor& buffer, int ranks, int rank) {
  Packed packed{.all = places_of(tensors, buffer, ranks, rank), .in = {}, .out = {}};
  for_each_part(tensors, buffer, ranks, [&](int owner, const Tensor& place, const Tensor& values) {
    if (owner == rank) {
      packed.in.push_back({place, values});
    } else {
      packed.out.push_back({values, place});
    }
  });
  return packed;
}

}  // namespace trainctl
