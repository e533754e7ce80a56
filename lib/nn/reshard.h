// The communicating layer, which changes the layout of a tensor, and the groups of ranks that
// share layers.
#pragma once

#include <array>

#include "comm/group.h"
#include "device/tensor.h"
#include "nn/layer.h"
#include "ops/router.h"
#include "plan/model/declaration.h"
#include "plan/tables/layout.h"

namespace trainctl {

// The rows of a tensor of all tokens, cut so that a product and a collective can be made side by
// side: each of the ranks that share the tokens has its rows in `count` chunks, and chunk c of a
// collective is the c-th of every rank.

struct RowRange {
  std::int64_t begin = 0, end = 0;
  Tensor of(const Tensor& x) const { return x.empty() ? x : x.slice(begin, end); }
  std::int64_t count() const { return end - begin; }
};

/// This rank's rows of a tensor that all ranks of `group` have.
inline Tensor local_rows(const Group& group, const Tensor& x) {
  const std::int64_t rows = x.rows() / group.size();
  return x.slice(group.rank() * rows, (group.rank() + 1) * rows);
}

struct RowChunks {
  std::int64_t ranks = 1;
  std::int64_t rows = 0;  // of each rank

  std::int64_t count() const { return row_chunks(rows); }
  /// The rows of a chunk within those of one rank.
  RowRange own(std::int64_t chunk) const {
    return {rows * chunk / count(), rows * (chunk + 1) / count()};
  }
  /// All rows of a rank, and those in a chunk, in a tensor of all tokens.
  RowRange of_rank(std::int64_t rank) const { return {rank * rows, (rank + 1) * rows}; }
  RowRange in(std::int64_t chunk, std::int64_t rank) const {
    const RowRange part = own(chunk);
    return {rank * rows + part.begin, rank * rows + part.end};
  }
  /// Where a chunk of all ranks lies, by rank, in a tensor that has one chunk after the other.
  RowRange packed(std::int64_t chunk) const {
    const RowRange part = own(chunk);
    return {ranks * part.begin, ranks * part.end};
  }
  /// The rows of a rank within it.
  RowRange within(std::int64_t chunk, std::int64_t rank) const {
    const std::int64_t count = own(chunk).count();
    return {rank * count, (rank + 1) * count};
  }
};

// The communicating layer: changes the layout of a tensor over one mesh axis. The collectives
// follow from plan/tables/layout.h: transition(from, to) in the forward pass, transition(dual(to),
// dual(from)) in the backward pass. Over a group of one rank, or none, it does nothing. The
// declarations of layers (plan/model/declaration.h) say what there is, also to the plan. Between
// tokens and all tokens it can run on a stream of its own and overlap products
// (docs/tensor-overlap.md).

/// The parts of a reshard that overlap products. Without a stream there are none.
struct ReshardOverlap {
  Stream* stream = nullptr;
  bool forward = false, backward = false;              // in chunks
  bool whole_forward = false, whole_backward = false;  // what start_forward, start_backward start
  Tensor arriving{};                                   // [T, hidden] where gathered chunks come in
};

struct Reshard {
  Group* group = nullptr;
  Layout from = Layout::invariant;
  Layout to = Layout::invariant;
  // [T, hidden] fp32: other types are cast into it, summed, and cast back. Empty: summed in their
  // own type.
  Tensor sum{};
  // Between tokens and features: by an all-to-all, or by a gather of which each rank takes its
  // part.
  bool at_once = true;
  Tensor packed{};  // where the tensor lies by rank on this way; gathered, that of all ranks
  ReshardOverlap beside{};

  /// x has layout `from`, y layout `to`; y is overwritten. If the collective is none or an
  /// all-reduce, x and y may be the same memory.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// dy is the gradient of y, dx that of x.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const;

  /// As forward; then, or meanwhile, work(RowRange) for all rows of y, each as soon as it is there.
  template <class Work>
  void forward_then(const Pass& pass, const Tensor& x, const Tensor& y, const Work& work) const {
    if (beside.forward) return gather_beside(pass, x, y, work);
    forward(pass, x, y);
    work(RowRange{0, y.rows()});
  }
  template <class Work>
  void backward_then(const Pass& pass, const Tensor& dy, const Tensor& dx, const Work& work) const {
    if (beside.backward) return gather_beside(pass, dy, dx, work);
    backward(pass, dy, dx);
    work(RowRange{0, dx.rows()});
  }
  /// work(RowRange, to) makes rows of x in `to`, part of the memory of x; then, or meanwhile, the
  /// same as forward or backward. Afterwards the contents of x are undefined.
  template <class Work>
  void forward_after(const Pass& pass, const Tensor& x, const Tensor& y, const Work& work) const {
    if (beside.forward) return scatter_beside(pass, x, y, work);
    work(RowRange{0, x.rows()}, x);
    forward(pass, x, y);
  }
  template <class Work>
  void backward_after(const Pass& pass, const Tensor& dy, const Tensor& dx,
                      const Work& work) const {
    if (beside.backward) return scatter_beside(pass, dy, dx, work);
    work(RowRange{0, dy.rows()}, dy);
    backward(pass, dy, dx);
  }

  /// As forward and backward, but in one piece that need not be complete before it is awaited.
  Event start_forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  Event start_backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const;
  static void await(const Pass& pass, const Event& event);

 private:
  using Arrivals = std::array<Event, max_row_chunks>;

  RowChunks chunks_of(const Tensor& own) const { return {group->size(), own.rows()}; }
  Arrivals start_chunks(const Pass& pass, const Tensor& x, const Tensor& y) const;
  void start_sum(const Pass& pass, const Tensor& x, const Tensor& y, std::int64_t chunk) const;

  /// The own rows come first, which no other rank sends.
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
  /// x has one chunk after the other.
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
    await(pass, beside.stream->record());
  }
};

/// The tensor-parallel group and the layout of the residual stream: split by token with sequence
/// parallelism, else the same on every rank.
struct TensorParallel {
  Group* group = nullptr;
  Layout stream = Layout::invariant;
  Tensor sum{};              // see Reshard
  TensorOverlap overlap{};   // of blocks
  Stream* beside = nullptr;  // where what overlaps is made
  Tensor arriving{};         // [T, hidden] where gathered chunks come in

  /// The part of this that declarations of a block's layers (plan/model) read to say what they
  /// exchange.
  LayerShare share(BlockSplit split) const {
    return {.stream = stream, .split = split, .overlap = overlap};
  }
  /// The reshard that a layer declares.
  Reshard along(const Exchange& one) const {
    return {.group = group,
            .from = one.from,
            .to = one.to,
            .sum = sum,
            .beside = {.stream = beside,
                       .forward = one.forward_chunks,
                       .backward = one.backward_chunks,
                       .whole_forward = one.forward_whole,
                       .whole_backward = one.backward_whole,
                       .arriving = arriving}};
  }
};

// The ranks that share the experts of a stage.

struct ExpertGroups {
  // The ranks with other experts. Null if this rank holds all of them.
  Group* ep = nullptr;
  // The ranks with another part of the same experts and other tokens. Null if this is the only one.
  Group* parts = nullptr;
  // The ranks that route the tokens of all of these ranks alike. Null if this is the only one.
  Group* routers = nullptr;
  // To the output of experts: true for the first of the ranks with parts of them.
  bool adds_bias = true;
  // Whether tensor-parallel ranks send their shares of the tokens (ExchangeRule of
  // plan/tables/layout.h): those of the residual stream, or a slice each of the tokens that
  // `slices` have. Null if they have all tokens.
  bool by_stream = false;
  Group* slices = nullptr;
  // The groups over which numbers of rows travel while rows do: those of the same ranks as `ep` and
  // `parts`, or these groups themselves where a pass waits for its rows.
  Group* ep_counts = nullptr;
  Group* parts_counts = nullptr;
  RowOrder order{};  // of the routers' tokens
  // Rows are sent to experts of other ranks and back in this many chunks on this stream, each
  // overlapping the products of another chunk. Without a stream nothing overlaps.
  std::int64_t chunks = 1;
  Stream* beside = nullptr;
};

}  // namespace trainctl
