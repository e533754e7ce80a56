#include "nn/reshard.h"

#include "base/error.h"

namespace trainctl {

namespace {

void copy(const Pass& pass, const Tensor& x, const Tensor& y) {
  if (x.data != y.data) pass.ops->stream->copy(y, x);
}

Tensor own_rows(const Group& group, const Tensor& x) {
  const std::int64_t rows = x.rows() / group.size();
  return x.slice(group.rank() * rows, (group.rank() + 1) * rows);
}

void move(const Pass& pass, Group& group, Layout from, Layout to, const Tensor& x,
          const Tensor& y) {
  if (group.size() == 1) return copy(pass, x, y);
  const std::optional<Collective> collective = transition(from, to);
  require(collective.has_value(), ExitCode::internal, "no collective joins these layouts");
  switch (*collective) {
    case Collective::none: return copy(pass, x, y);
    case Collective::all_reduce: copy(pass, x, y); return group.all_reduce(y, *pass.ops->stream);
    case Collective::reduce_scatter_tokens: return group.reduce_scatter(x, y, *pass.ops->stream);
    case Collective::all_gather_tokens: return group.all_gather(x, y, *pass.ops->stream);
    case Collective::slice_tokens: return copy(pass, own_rows(group, x), y);
    default: throw Error(ExitCode::internal, "not built yet: moving a tensor split by features");
  }
}

}  // namespace

void Reshard::forward(const Pass& pass, const Tensor& x, const Tensor& y) const {
  move(pass, *group, from, to, x, y);
}

void Reshard::backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const {
  move(pass, *group, dual(to), dual(from), dy, dx);
}

}  // namespace trainctl
