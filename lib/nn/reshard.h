// The communicating layer: turns a tensor's layout over one mesh axis into another. What that takes
// follows from plan/tables/layout.h, forward by transition(from, to), backward by
// transition(dual(to), dual(from)). Over a group of one rank it does nothing. Its collectives are
// listed and priced by plan/cost/communication.cpp.
#pragma once

#include "comm/group.h"
#include "nn/pass.h"
#include "plan/tables/layout.h"

namespace trainctl {

struct Reshard {
  Group* group = nullptr;
  Layout from = Layout::invariant;
  Layout to = Layout::invariant;
  // [T, hidden] fp32: what is not fp32 is cast into it to be summed, and back. Empty: summed as it
  // is.
  Tensor sum{};

  /// x lies as `from` says, y as `to`; overwritten. Where the collective is none or an all-reduce,
  /// x and y may be the same memory.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// dy is the gradient of y, dx that of x.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const;
};

/// The tensor-parallel group and how the residual stream lies over it: split by token with sequence
/// parallelism, else the same on every rank.
struct TensorParallel {
  Group* group = nullptr;
  Layout stream = Layout::invariant;
  Tensor sum{};  // see Reshard

  /// Before a column layer: every rank needs all tokens.
  Reshard enter() const { return {group, stream, Layout::replicated, sum}; }
  /// After a row layer: its output is a sum over the ranks.
  Reshard leave() const { return {group, Layout::partial, stream, sum}; }
};

}  // namespace trainctl
