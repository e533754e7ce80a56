// The communicating layer, which changes the layout of a tensor, and the groups of ranks that share
// layers.
#pragma once

#include <array>

#include "comm/group.h"
#include "device/tensor.h"
#include "nn/layer.h"
#include "ops/router.h"
#include "plan/model/declaration.h"
#include "plan/tables/layout.h"

namespace trainctl {

/// This rank's rows of x, where the ranks of `group` divide the rows equally.
inline Tensor local_rows(const Group& group, const Tensor& x) {
  const std::int64_t rows = x.rows() / group.size();
  return x.slice(group.rank() * rows, (group.rank() + 1) * rows);
}

// Chunks of the rows of a tensor of all tokens, so that a product and a collective can overlap:
// each rank's rows are cut into `count` chunks, and chunk c of a collective is chunk c of every
// rank.

struct RowChunks {
  std::int64_t ranks = 1;
  std::int64_t rows = 0;  // rows of each rank

  std::int64_t count() const { return row_chunks(rows); }
  /// The rows of a chunk, relative to the first row of its rank.
  Range own(std::int64_t chunk) const {
    return {rows * chunk / count(), rows * (chunk + 1) / count()};
  }
  /// The rows of a rank in a tensor of all tokens; in(): the rows of one chunk of a rank.
  Range of_rank(std::int64_t rank) const { return {rank * rows, (rank + 1) * rows}; }
  Range in(std::int64_t chunk, std::int64_t rank) const {
    const Range part = own(chunk);
    return {rank * rows + part.begin, rank * rows + part.end};
  }
  /// The rows of a chunk of all ranks, in a tensor that is ordered by chunk, then by rank.
  Range packed(std::int64_t chunk) const {
    const Range part = own(chunk);
    return {ranks * part.begin, ranks * part.end};
  }
  /// The rows of a rank relative to the first row of packed(chunk).
  Range within(std::int64_t chunk, std::int64_t rank) const {
    const std::int64_t count = own(chunk).count();
    return {rank * count, (rank + 1) * count};
  }
};

// The communicating layer: changes the layout of a tensor over one mesh axis. plan/tables/layout.h
// gives the collectives: transition(from, to) in the forward pass, transition(dual(to), dual(from))
// in the backward pass. Over a group of one rank, or none, it does nothing. The declarations of
// layers (plan/model/declaration.h) list a model's reshards, also for the plan. Reshards between
// tokens and all tokens can run on a stream of their own and overlap products
// (docs/tensor-overlap.md).

struct Reshard {
  Group* group = nullptr;
  Exchange way{};  // its layouts, and the number of chunks that overlap products
  // [T, hidden] fp32: other types are cast to fp32 here, summed, and cast back. If empty, tensors
  // are summed in their own type.
  Tensor sum{};
  // Exchange between tokens and features by one all-to-all if true, else by an all-gather from
  // which each rank copies its part.
  bool at_once = true;
  Tensor packed{};  // exchange buffer, ordered by rank; for a gather, tensors of all ranks
  Stream* beside = nullptr;
  Tensor arriving{};  // [T, hidden] buffer that receives gathered chunks

  /// x has layout way.from, y layout way.to; y is overwritten. For Collective::none and all_reduce,
  /// x and y may be the same memory.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// dy is the gradient of y, dx the gradient of x.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const;

  /// Like forward; also calls work(Range) for all rows of y, as soon as they have arrived.
  template <class Work>
  void forward_then(const Pass& pass, const Tensor& x, const Tensor& y, const Work& work) const {
    if (way.forward_chunks) return gather_beside(pass, x, y, work);
    forward(pass, x, y);
    work(Range{0, y.rows()});
  }
  template <class Work>
  void backward_then(const Pass& pass, const Tensor& dy, const Tensor& dx, const Work& work) const {
    if (way.backward_chunks) return gather_beside(pass, dy, dx, work);
    backward(pass, dy, dx);
    work(Range{0, dx.rows()});
  }
  /// Like forward and backward, after or overlapping work(Range, to), which writes these rows of
  /// x to `to`, a part of x's memory. Afterwards the contents of x are undefined.
  template <class Work>
  void forward_after(const Pass& pass, const Tensor& x, const Tensor& y, const Work& work) const {
    if (way.forward_chunks) return scatter_beside(pass, x, y, work);
    work(Range{0, x.rows()}, x);
    forward(pass, x, y);
  }
  template <class Work>
  void backward_after(const Pass& pass, const Tensor& dy, const Tensor& dx,
                      const Work& work) const {
    if (way.backward_chunks) return scatter_beside(pass, dy, dx, work);
    work(Range{0, dy.rows()}, dy);
    backward(pass, dy, dx);
  }

  /// Like forward and backward in one piece, but complete only after await() of the event.
  Event start_forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  Event start_backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const;
  static void await(const Pass& pass, const Event& event);

 private:
  using Arrivals = std::array<Event, max_row_chunks>;

  RowChunks chunks_of(const Tensor& own) const { return {group->size(), own.rows()}; }
  Arrivals start_chunks(const Pass& pass, const Tensor& x, const Tensor& y) const;
  void start_sum(const Pass& pass, const Tensor& x, const Tensor& y, std::int64_t chunk) const;

  /// This rank's own rows come first, because they need no transfer.
  template <class Work>
  void gather_beside(const Pass& pass, const Tensor& x, const Tensor& y, const Work& work) const {
    const RowChunks chunks = chunks_of(x);
    const Arrivals arrivals = start_chunks(pass, x, y);
    work(chunks.of_rank(group->rank()));
    for (std::int64_t chunk = 0; chunk < chunks.count(); ++chunk) {
      await(pass, arrivals[static_cast<std::size_t>(chunk)]);
      for (int rank = 0; rank < group->size(); ++rank) {
        if (rank != group->rank()) work(chunks.in(chunk, rank));
      }
    }
  }
  /// The rows of x are ordered by chunk, then by rank.
  template <class Work>
  void scatter_beside(const Pass& pass, const Tensor& x, const Tensor& y, const Work& work) const {
    const RowChunks chunks = chunks_of(y);
    for (std::int64_t chunk = 0; chunk < chunks.count(); ++chunk) {
      const Tensor part = chunks.packed(chunk).of(x);
      for (int rank = 0; rank < group->size(); ++rank) {
        work(chunks.in(chunk, rank), chunks.within(chunk, rank).of(part));
      }
      start_sum(pass, part, y, chunk);
    }
    await(pass, beside->record());
  }
};

/// The tensor-parallel group and the layout of the residual stream: with sequence parallelism split
/// by token, otherwise equal on all ranks.
struct TensorParallel {
  Group* group = nullptr;
  Layout stream = Layout::invariant;
  Tensor sum{};              // Reshard::sum of the reshards
  TensorOverlap overlap{};   // overlap inside blocks
  Stream* beside = nullptr;  // stream of overlapped collectives
  Tensor arriving{};         // [T, hidden] buffer that receives gathered chunks

  /// The settings from which the declarations of a block's layers (plan/model) derive their
  /// exchanges.
  LayerShare share(BlockSplit split) const {
    return {.stream = stream, .split = split, .overlap = overlap};
  }
  /// The reshard for an exchange that a layer declares.
  Reshard along(const Exchange& one) const {
    return {.group = group, .way = one, .sum = sum, .beside = beside, .arriving = arriving};
  }
};

// The ranks that share the experts of a stage.

struct ExpertGroups {
  // Ranks that hold different experts. Null if this rank holds all experts.
  Group* ep = nullptr;
  // Ranks that hold other parts of the same experts and get other tokens. Null if there are none.
  Group* parts = nullptr;
  // Ranks that route their tokens together, with equal decisions. Null if there are no others.
  Group* routers = nullptr;
  // Whether this rank adds the output bias; true on the first of the ranks with parts of an expert.
  bool adds_bias = true;
  // Whether tensor-parallel ranks send only their share of the tokens (ExchangeRule of
  // plan/tables/layout.h): by_stream, the tokens of their part of the residual stream; or one slice
  // for each rank of `slices`, null if not sliced. Otherwise each sends all tokens.
  bool by_stream = false;
  Group* slices = nullptr;
  // The groups that exchange row counts while rows are in transit: the same ranks as `ep` and
  // `parts`, or these groups themselves if a pass waits for its rows.
  Group* ep_counts = nullptr;
  Group* parts_counts = nullptr;
  RowOrder order{};  // order of the tokens that routers see
  // Rows travel to experts of other ranks and back in this many chunks on this stream, each
  // overlapping the products of another chunk. Without a stream nothing overlaps.
  std::int64_t chunks = 1;
  Stream* beside = nullptr;
};

}  // namespace trainctl
