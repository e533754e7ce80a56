// The largest of many numbers, over several calls: key = max(key, ordered_key(x) of each x)
// (base/ordered_key.h). A key of 0 is the beginning; one number of x that is not a number is the
// largest.
#pragma once

#include "device/tensor.h"
#include "ops/attention.h"
#include "ops/context.h"

namespace trainctl {

struct Largest {
  Tensor x;    // any shape, fp32; with `real` [sequences, heads, query_length] as a logsumexp
  Tensor key;  // [1] i32, whose bits are the key; raised
  // Optional: of queries of 0 no number counts. AttentionForward::real of this shape, of which the
  // queries count.
  Tensor real{};
  AttentionShape shape{};
};

void largest(const OpContext& context, const Largest& args);

}  // namespace trainctl
