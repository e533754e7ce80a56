// The communicating layer: changes the layout of a tensor over one mesh axis. The collectives
// follow from plan/tables/layout.h: transition(from, to) in the forward pass, transition(dual(to),
// dual(from)) in the backward pass. Over a group of one rank, or none, it does nothing.
// plan/cost/communication.cpp lists its collectives and computes their cost.
#pragma once

#include "comm/group.h"
#include "nn/exchange/pass.h"
#include "plan/tables/layout.h"

namespace trainctl {

struct Reshard {
  Group* group = nullptr;
  Layout from = Layout::invariant;
  Layout to = Layout::invariant;
  // [T, hidden] fp32: other types are cast into it, summed, and cast back. Empty: summed in their
  // own type.
  Tensor sum{};
  // As many elements as the tensor: where it lies by rank on its way between tokens and features.
  Tensor packed{};

  /// x has layout `from`, y layout `to`; y is overwritten. If the collective is none or an
  /// all-reduce, x and y may be the same memory.
  void forward(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// dy is the gradient of y, dx that of x.
  void backward(const Pass& pass, const Tensor& dy, const Tensor& dx) const;
};

/// The tensor-parallel group and the layout of the residual stream: split by token with sequence
/// parallelism, else the same on every rank.
struct TensorParallel {
  Group* group = nullptr;
  Layout stream = Layout::invariant;
  Tensor sum{};  // see Reshard

  /// Before a column-parallel layer: every rank needs all tokens.
  Reshard enter() const { return {group, stream, Layout::replicated, sum}; }
  /// After a row-parallel layer: its output is a sum over the ranks.
  Reshard leave() const { return {group, Layout::partial, stream, sum}; }
};

}  // namespace trainctl
