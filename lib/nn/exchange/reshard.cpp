#include "nn/exchange/reshard.h"

#include <vector>

#include "base/error.h"
#include "ops/cast.h"
#include "ops/swap_blocks.h"

namespace trainctl {

namespace {

void copy(const Pass& pass, const Tensor& x, const Tensor& y) {
  if (x.data != y.data) pass.ops->stream->copy(y, x);
}

Tensor own_rows(const Group& group, const Tensor& x) {
  const std::int64_t rows = x.rows() / group.size();
  return x.slice(group.rank() * rows, (group.rank() + 1) * rows);
}

/// Casts x to fp32, sums it and casts the result, or this rank's rows, to y.
void sum_in_fp32(const Pass& pass, Group& group, const Tensor& sum, const Tensor& x,
                 const Tensor& y) {
  const Tensor wide = sum.slice(0, x.rows());
  cast(*pass.ops, {.x = x, .y = wide});
  if (y.rows() == x.rows()) {
    group.all_reduce(wide, *pass.ops->stream);
    return cast(*pass.ops, {.x = wide, .y = y});
  }
  const Tensor own = own_rows(group, wide);
  group.reduce_scatter(wide, own, *pass.ops->stream);
  cast(*pass.ops, {.x = own, .y = y});
}

struct Way {
  Layout from, to;
};

/// [T, F] of this rank's tokens to [ranks T, F / ranks] of all tokens, and back.
void exchange(const Pass& pass, const Reshard& reshard, Layout from, const Tensor& x,
              const Tensor& y) {
  Group& group = *reshard.group;
  Stream& stream = *pass.ops->stream;
  const std::int64_t ranks = group.size();
  const Tensor packed = reshard.packed.view({reshard.packed.numel()}).slice(0, x.numel());
  thread_local std::vector<std::int64_t> counts;  // so that a step allocates nothing
  counts.assign(static_cast<std::size_t>(ranks), x.numel() / ranks);
  if (from == Layout::tokens) {
    swap_blocks(*pass.ops, {.x = x, .y = packed, .rows = x.rows(), .columns = ranks});
    return group.all_to_all(packed, counts, y, counts, stream);
  }
  group.all_to_all(x, counts, packed, counts, stream);
  swap_blocks(*pass.ops, {.x = packed, .y = y, .rows = ranks, .columns = y.rows()});
}

void move(const Pass& pass, const Reshard& reshard, Way way, const Tensor& x, const Tensor& y) {
  if (reshard.group == nullptr || reshard.group->size() == 1) return copy(pass, x, y);
  Group& group = *reshard.group;
  const std::optional<Collective> collective = transition(way.from, way.to);
  require(collective.has_value(), ExitCode::internal, "no collective joins these layouts");
  const bool wide = !reshard.sum.empty() && x.dtype != DType::f32;
  switch (*collective) {
    case Collective::none: return copy(pass, x, y);
    case Collective::all_reduce:
      if (wide) return sum_in_fp32(pass, group, reshard.sum, x, y);
      copy(pass, x, y);
      return group.all_reduce(y, *pass.ops->stream);
    case Collective::reduce_scatter_tokens:
      if (wide) return sum_in_fp32(pass, group, reshard.sum, x, y);
      return group.reduce_scatter(x, y, *pass.ops->stream);
    case Collective::all_gather_tokens: return group.all_gather(x, y, *pass.ops->stream);
    case Collective::slice_tokens: return copy(pass, own_rows(group, x), y);
    case Collective::all_to_all: return exchange(pass, reshard, way.from, x, y);
    default:
      throw Error(ExitCode::internal,
                  "not built yet: gathering or summing a tensor split by features");
  }
}

}  // namespace

void Reshard::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  move(pass, *this, {from, to}, x, y);
}

void Reshard::backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const {
  move(pass, *this, {dual(to), dual(from)}, dy, dx);
}

}  // namespace trainctl
