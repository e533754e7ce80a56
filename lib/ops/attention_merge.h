// Joins the results of attention over two disjoint sets of keys: with l and m their logsumexp,
//   l' = log(exp(l) + exp(m)), out' = exp(l - l') out + exp(m - l') other.
#pragma once

#include "ops/attention.h"

namespace trainctl {

struct AttentionMerge {
  AttentionShape shape;    // of which the queries count
  Tensor out;              // [sequences * query_length, heads * head_dim], replaced by the sum
  Tensor logsumexp;        // [sequences, heads, query_length] fp32, replaced
  Tensor other;            // as out; unused for a query whose other_logsumexp is -infinity
  Tensor other_logsumexp;  // as logsumexp
};

void attention_merge(const OpContext& context, const AttentionMerge& args);

}  // namespace trainctl
