// Causal scaled dot-product attention with grouped KV heads, blockwise with an online softmax (Dao
// et al. 2022):
//   out = softmax(cap(scale q k^T) + mask) v per head, cap(s) = c tanh(s / c) where there is one.
//   No [query, key] matrix is ever in memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/attention_part.h"
#include "device/tensor.h"
#include "ops/context.h"
#include "ops/elementwise.h"

namespace trainctl {

/// Tokens with consecutive positions in their sequence, and consecutive rows of a tensor.
struct TokenRun {
  std::int64_t position = 0;  // of the first one
  std::int64_t row = 0;       // of the first one of sequence 0
};

/// Where the tokens of every sequence lie: in runs of equal length. Token i of run r of sequence s
/// has row runs[r].row + s * stride + i and position runs[r].position + i.
struct TokenRuns {
  std::int64_t length = 0;  // of a run
  std::int64_t stride = 0;  // rows from one sequence to the next
  std::span<const TokenRun> runs{};
  TokenRun only{};  // where `runs` is empty

  std::int64_t count() const { return runs.empty() ? 1 : static_cast<std::int64_t>(runs.size()); }
  const TokenRun& at(std::int64_t run) const {
    return runs.empty() ? only : runs[static_cast<std::size_t>(run)];
  }
};

/// A query sees the keys of its sequence up to its own position, or none of them: a rank may have
/// only some of the keys.
struct AttentionShape {
  std::int64_t sequences = 0;
  std::int64_t query_length = 0;  // queries of a sequence
  std::int64_t key_length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;      // divides heads
  std::int64_t head_dim = 0;      // a multiple of 2, at most 256
  std::int64_t query_offset = 0;  // position of the first query, where query_runs is empty
  float scale = 1;                // usually 1/sqrt(head_dim)
  float cap = 0;                  // c; 0: none
  KeyLimits limits{};
  // Empty: one run, of the keys from position 0, of the queries from query_offset. Several runs
  // hold query_length or key_length tokens together.
  TokenRuns query_runs{};
  TokenRuns key_runs{};

  TokenRuns queries() const {
    if (!query_runs.runs.empty()) return query_runs;
    return {.length = query_length, .stride = query_length, .only = {query_offset, 0}};
  }
  TokenRuns keys() const {
    if (!key_runs.runs.empty()) return key_runs;
    return {.length = key_length, .stride = key_length};
  }
};

/// Where dropout's mask comes from: element ((token * heads_total + first_head + head) * seq_length
/// + position of the key).
struct AttentionDropout {
  DropoutKey key;
  Tensor global_token;  // [queries] i64
  std::int64_t first_head = 0;
  std::int64_t heads_total = 0;
  std::int64_t seq_length = 0;
};

/// With the keys of a part only, the backward pass takes `out` and `logsumexp` over all keys: dk
/// and dv are then complete for these keys, and dq is what these keys add to it.
struct AttentionArgs {
  AttentionShape shape;
  Tensor q;     // [sequences * query_length, heads * head_dim] fp32, bf16 or fp16
  Tensor k, v;  // [sequences * key_length, kv_heads * head_dim]
  // Optional [sequences * query_length] i32: the first position that each query sees (of its
  // document), at most its own; does not fall within a run.
  Tensor first_position;
  AttentionDropout dropout;
  // These two are overwritten by the forward pass and read by the backward pass. `out` is as q, 0
  // for a query that sees no key.
  Tensor out;
  // [sequences, heads, query_length] fp32; the queries of a sequence in the order of
  // their runs. -infinity for a query that sees no key.
  Tensor logsumexp;
  // For the forward pass. Optional [heads] i32, raised: the keys (base/integers.h) of the largest
  // score of each head, after the scale and before the cap, among the keys that queries see; what
  // is not a number may be passed over. Not with a cap on CUDA.
  Tensor largest{};
  // Optional [sequences * query_length] u8, in the order of q's rows: 0 for queries that do not
  // raise `largest`.
  Tensor real{};
  // The backward pass takes the gradients.
  Tensor d_out{};           // as q
  Tensor dq{}, dk{}, dv{};  // as q, k, v; overwritten; dq may be the same memory as d_out
};

void attention_forward(const OpContext& context, const AttentionArgs& args);
void attention_backward(const OpContext& context, const AttentionArgs& args);

// Joins the results of attention over two disjoint sets of keys: with l and m their logsumexp,
//   l' = log(exp(l) + exp(m)), out' = exp(l - l') out + exp(m - l') other.

struct AttentionMerge {
  AttentionShape shape;    // of which the queries count
  Tensor out;              // [sequences * query_length, heads * head_dim], replaced by the sum
  Tensor logsumexp;        // [sequences, heads, query_length] fp32, replaced
  Tensor other;            // as out; unused for a query whose other_logsumexp is -infinity
  Tensor other_logsumexp;  // as logsumexp
};

void attention_merge(const OpContext& context, const AttentionMerge& args);

// Sinks of attention (GPT-OSS): a learned number s of each head is one more term of its softmax,
// which has no value. After attention over all keys, with l the logsumexp of a query,
//   forward:  out' = out sigmoid(l - s), l' = log(exp(l) + exp(s))
//   backward: ds += -sum over queries of exp(s - l') (d_out . out')
// The backward of attention itself, with out' and l' for out and l, gives dq, dk and dv.

/// The forward pass replaces `out` and `logsumexp`, the backward pass reads them.
struct AttentionSinkArgs {
  AttentionShape shape;  // of which the queries count
  Tensor sinks;          // [heads] fp32
  Tensor out;            // [sequences * query_length, heads * head_dim]
  Tensor logsumexp;      // [sequences, heads, query_length] fp32
  // Only the backward pass takes these.
  Tensor d_out{};    // as out
  Tensor d_sinks{};  // [heads] fp32, added to
};

void attention_sink_forward(const OpContext& context, const AttentionSinkArgs& args);
void attention_sink_backward(const OpContext& context, const AttentionSinkArgs& args);

/// The largest of many numbers, over several calls: key = max(key, ordered_key(x) of each x)
/// (base/integers.h). A key of 0 is the beginning; one number of x that is not a number is the
/// largest.
struct Largest {
  Tensor x;    // any shape, fp32; with `real` [sequences, heads, query_length] as a logsumexp
  Tensor key;  // [1] i32, whose bits are the key; raised
  // Optional: of queries of 0 no number counts. AttentionArgs::real of this shape, of which the
  // queries count.
  Tensor real{};
  AttentionShape shape{};
};

void largest(const OpContext& context, const Largest& args);

}  // namespace trainctl
