#include "nn/reshard.h"

#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/time_spent.h"
#include "ops/elementwise.h"
#include "ops/rows.h"

namespace trainctl {

namespace {

void copy(const Pass& pass, const Tensor& x, const Tensor& y) {
  if (x.data != y.data) pass.ops->stream->copy(y, x);
}

/// Casts x to fp32 and sums it over the ranks; casts the sum, or this rank's part, to y.
void sum_in_fp32(const Pass& pass, Group& group, const Tensor& wide, const Tensor& x,
                 const Tensor& y) {
  cast(*pass.ops, {.x = x, .y = wide});
  if (y.rows() == x.rows()) {
    group.all_reduce(wide, *pass.ops->stream);
    return cast(*pass.ops, {.x = wide, .y = y});
  }
  const Tensor own = local_rows(group, wide);
  group.reduce_scatter(wide, own, *pass.ops->stream);
  cast(*pass.ops, {.x = own, .y = y});
}

/// Reduce-scatters x to y in fp32, in the order of `stream`.
void scatter_in_fp32(const OpContext& ops, Group& group, const Tensor& wide, const Tensor& x,
                     const Tensor& y, Stream& stream) {
  OpContext there = ops;
  there.stream = &stream;
  const auto cast_there = [&there](const Tensor& from, const Tensor& to) {
    in_order(there, [there, from, to] { cast(there, {.x = from, .y = to}); });
  };
  const Tensor own = local_rows(group, wide);
  cast_there(x, wide);
  group.reduce_scatter(wide, own, stream);
  cast_there(own, y);
}

struct Transition {
  Layout from, to;
};

/// Exchanges [T, F] of this rank's tokens for [ranks T, F / ranks] of all tokens, or the reverse.
void exchange(const Pass& pass, const Reshard& reshard, Layout from, const Tensor& x,
              const Tensor& y) {
  Group& group = *reshard.group;
  Stream& stream = *pass.ops->stream;
  const std::int64_t ranks = group.size();
  const Tensor packed = reshard.packed.view({reshard.packed.numel()}).slice(0, x.numel());
  thread_local std::vector<std::int64_t> counts;  // thread_local so that a step allocates nothing
  counts.assign(static_cast<std::size_t>(ranks), x.numel() / ranks);
  if (from == Layout::tokens) {
    swap_blocks(*pass.ops, {.x = x, .y = packed, .rows = x.rows(), .columns = ranks});
    return group.all_to_all(packed, counts, y, counts, stream);
  }
  group.all_to_all(x, counts, packed, counts, stream);
  swap_blocks(*pass.ops, {.x = packed, .y = y, .rows = ranks, .columns = y.rows()});
}

/// Like exchange(), but by an all-gather: each rank gathers all blocks of all ranks, and copies its
/// own out of them.
void exchange_gathered(const Pass& pass, const Reshard& reshard, Layout from, const Tensor& x,
                       const Tensor& y) {
  Group& group = *reshard.group;
  Stream& stream = *pass.ops->stream;
  const std::int64_t ranks = group.size();
  const Tensor all = reshard.packed.view({reshard.packed.numel()}).slice(0, ranks * x.numel());
  const std::int64_t block = x.numel() / ranks;
  const auto block_in = [&](const Tensor& blocks, std::int64_t number) {
    return blocks.view({blocks.numel()}).slice(number * block, (number + 1) * block);
  };
  const auto take_own = [&](const Tensor& to) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      copy(pass, block_in(all, rank * ranks + group.rank()), block_in(to, rank));
    }
  };
  if (from == Layout::tokens) {
    const Tensor own = all.slice(group.rank() * x.numel(), (group.rank() + 1) * x.numel());
    swap_blocks(*pass.ops, {.x = x, .y = own, .rows = x.rows(), .columns = ranks});
    group.all_gather(own, all, stream);
    return take_own(y);
  }
  group.all_gather(x, all, stream);
  take_own(all);  // safe in place: no copy overwrites a block that is read later
  const Tensor packed = all.slice(0, y.numel());
  swap_blocks(*pass.ops, {.x = packed, .y = y, .rows = ranks, .columns = y.rows()});
}

void move(const Pass& pass, const Reshard& reshard, Transition way, const Tensor& x,
          const Tensor& y) {
  if (reshard.group == nullptr || reshard.group->size() == 1) return copy(pass, x, y);
  Group& group = *reshard.group;
  const std::optional<Collective> collective = transition(way.from, way.to);
  if (!collective) throw Error(ExitCode::internal, "no collective joins these layouts");
  const bool wide = !reshard.sum.empty() && x.dtype != DType::f32;
  switch (*collective) {
    case Collective::none: return copy(pass, x, y);
    case Collective::all_reduce:
      if (wide) return sum_in_fp32(pass, group, reshard.sum.slice(0, x.rows()), x, y);
      copy(pass, x, y);
      return group.all_reduce(y, *pass.ops->stream);
    case Collective::reduce_scatter_tokens:
      if (wide) return sum_in_fp32(pass, group, reshard.sum.slice(0, x.rows()), x, y);
      return group.reduce_scatter(x, y, *pass.ops->stream);
    case Collective::all_gather_tokens: return group.all_gather(x, y, *pass.ops->stream);
    case Collective::slice_tokens: return copy(pass, local_rows(group, x), y);
    case Collective::all_to_all:
      return reshard.at_once ? exchange(pass, reshard, way.from, x, y)
                             : exchange_gathered(pass, reshard, way.from, x, y);
    default:
      throw Error(ExitCode::internal,
                  "not built yet: gathering or summing a tensor split by features");
  }
}

}  // namespace

Reshard::Arrivals Reshard::start_chunks(const Pass& pass, const Tensor& x, const Tensor& y) const {
  const RowChunks chunks = chunks_of(x);
  Stream& stream = *beside;
  copy(pass, x, local_rows(*group, y));
  stream.wait(pass.ops->stream->record());
  Arrivals arrivals{};
  for (std::int64_t chunk = 0; chunk < chunks.count(); ++chunk) {
    const Tensor packed_rows = chunks.packed(chunk).of(arriving);
    group->all_gather(chunks.own(chunk).of(x), packed_rows, stream);
    for (int rank = 0; rank < group->size(); ++rank) {
      if (rank == group->rank()) continue;
      stream.copy(chunks.in(chunk, rank).of(y), chunks.within(chunk, rank).of(packed_rows));
    }
    at(arrivals, chunk) = stream.record();
  }
  return arrivals;
}

void Reshard::start_sum(const Pass& pass, const Tensor& x, const Tensor& y,
                        std::int64_t chunk) const {
  const RowChunks chunks = chunks_of(y);
  const Tensor own = chunks.own(chunk).of(y);
  Stream& stream = *beside;
  stream.wait(pass.ops->stream->record());
  if (sum.empty() || x.dtype == DType::f32) return group->reduce_scatter(x, own, stream);
  scatter_in_fp32(*pass.ops, *group, chunks.packed(chunk).of(sum), x, own, stream);
}

Event Reshard::start_forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  if (!way.forward_whole) {
    forward(pass, x, y);
    return {};
  }
  beside->wait(pass.ops->stream->record());
  group->all_gather(x, y, *beside);
  return beside->record();
}

Event Reshard::start_backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const {
  if (!way.backward_whole) {
    backward(pass, dy, dx);
    return {};
  }
  beside->wait(pass.ops->stream->record());
  if (sum.empty() || dy.dtype == DType::f32) {
    group->reduce_scatter(dy, dx, *beside);
  } else {
    scatter_in_fp32(*pass.ops, *group, sum.slice(0, dy.rows()), dy, dx, *beside);
  }
  return beside->record();
}

void Reshard::await(const Pass& pass, const Event& event) {
  if (event.stream == nullptr) return;
  const AddTime timed(&TimeSpent::collectives);
  pass.ops->stream->wait(event);
}

void Reshard::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  move(pass, *this, {way.from, way.to}, x, y);
}

void Reshard::backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const {
  move(pass, *this, {dual(way.to), dual(way.from)}, dy, dx);
}

}  // namespace trainctl
