// Causal scaled dot-product attention with grouped KV heads, blockwise with an online softmax (Dao
// et al. 2022). No [query, key] matrix is ever in memory:
//   out = softmax(cap(scale q k^T) + mask) v per head, where cap(s) = c tanh(s / c) with a cap c,
//   else s.
#pragma once

#include <cstdint>
#include <span>

#include "base/attention_part.h"
#include "device/tensor.h"
#include "ops/context.h"
#include "ops/elementwise.h"

namespace trainctl {

/// A run of tokens: consecutive positions in their sequence, and consecutive rows of a tensor.
struct TokenRun {
  std::int64_t position = 0;  // position of the run's first token
  std::int64_t row = 0;       // row of the run's first token in sequence 0
};

/// The rows and positions of the tokens of all sequences, in runs of equal length. Token i of run r
/// of sequence s has row runs[r].row + s * stride + i and position runs[r].position + i.
struct TokenRuns {
  std::int64_t length = 0;  // tokens per run
  std::int64_t stride = 0;  // rows from one sequence to the next
  std::span<const TokenRun> runs{};
  TokenRun only{};  // the only run, if `runs` is empty

  std::int64_t count() const { return runs.empty() ? 1 : static_cast<std::int64_t>(runs.size()); }
  const TokenRun& at(std::int64_t run) const {
    return runs.empty() ? only : runs[static_cast<std::size_t>(run)];
  }
};

/// The sizes and the mask of attention. A query sees the keys of its sequence up to its own
/// position. It may see no key, because a rank may have only some of the keys.
struct AttentionShape {
  std::int64_t sequences = 0;
  std::int64_t query_length = 0;  // queries per sequence
  std::int64_t key_length = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;      // must divide heads
  std::int64_t head_dim = 0;      // a multiple of 2, at most 256
  std::int64_t query_offset = 0;  // position of the first query, if query_runs is empty
  float scale = 1;                // usually 1/sqrt(head_dim)
  float cap = 0;                  // c; no cap if 0
  KeyLimits limits{};
  // If empty, each sequence is one run: keys from position 0, queries from query_offset. The runs
  // of a sequence hold query_length or key_length tokens together.
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

/// The source of the dropout mask, whose element index is ((token * heads_total + first_head +
/// head) * seq_length + position of the key).
struct AttentionDropout {
  DropoutKey key;
  Tensor global_token;  // [queries] i64
  std::int64_t first_head = 0;
  std::int64_t heads_total = 0;
  std::int64_t seq_length = 0;
};

/// If k and v are only a part of all keys and values, the backward pass takes `out` and `logsumexp`
/// over all keys. dk and dv are then complete for this part, and dq is its addend to the whole dq.
struct AttentionArgs {
  AttentionShape shape;
  Tensor q;     // [sequences * query_length, heads * head_dim] fp32, bf16 or fp16
  Tensor k, v;  // [sequences * key_length, kv_heads * head_dim]
  // Optional [sequences * query_length] i32: the first position that each query sees, the start of
  // its document. At most the query's own position, and not inside a run.
  Tensor first_position;
  AttentionDropout dropout;
  // These two are overwritten by the forward pass and read by the backward pass. `out` is as q, 0
  // for a query that sees no key.
  Tensor out;
  // [sequences, heads, query_length] fp32, a sequence's queries in the order of their runs.
  // -infinity for a query that sees no key.
  Tensor logsumexp;
  // Optional [heads] i32: the forward pass raises it to the key (base/integers.h) of each head's
  // largest score, after the scale and before the cap, over all visible keys. NaN may be ignored.
  // On CUDA not together with a cap.
  Tensor largest{};
  // Optional [sequences * query_length] u8, in the order of q's rows: 0 for queries that do not
  // count for `largest`.
  Tensor real{};
  // The backward pass takes the gradients.
  Tensor d_out{};           // as q
  Tensor dq{}, dk{}, dv{};  // as q, k, v; overwritten; dq may be the same memory as d_out
};

void attention_forward(const OpContext& context, const AttentionArgs& args);
void attention_backward(const OpContext& context, const AttentionArgs& args);

// Merges the results of attention over two disjoint sets of keys, whose logsumexp are l and m:
//   l' = log(exp(l) + exp(m)), out' = exp(l - l') out + exp(m - l') other.

struct AttentionMerge {
  AttentionShape shape;    // only the queries matter
  Tensor out;              // [sequences * query_length, heads * head_dim], updated in place
  Tensor logsumexp;        // [sequences, heads, query_length] fp32, updated in place
  Tensor other;            // as out; not read for a query whose other_logsumexp is -infinity
  Tensor other_logsumexp;  // as logsumexp
};

void attention_merge(const OpContext& context, const AttentionMerge& args);

// Attention sinks (GPT-OSS): a learned number s per head is one more term of the softmax, without a
// value. After attention over all keys, with a query's logsumexp l:
//   forward:  out' = out sigmoid(l - s), l' = log(exp(l) + exp(s))
//   backward: ds += -sum over queries of exp(s - l') (d_out . out')
// attention_backward gives dq, dk and dv if it gets out' and l' for out and l.

/// The forward pass replaces `out` and `logsumexp`, the backward pass reads them.
struct AttentionSinkArgs {
  AttentionShape shape;  // only the queries matter
  Tensor sinks;          // [heads] fp32
  Tensor out;            // [sequences * query_length, heads * head_dim]
  Tensor logsumexp;      // [sequences, heads, query_length] fp32
  // Only the backward pass takes these.
  Tensor d_out{};    // as out
  Tensor d_sinks{};  // [heads] fp32, accumulated
};

void attention_sink_forward(const OpContext& context, const AttentionSinkArgs& args);
void attention_sink_backward(const OpContext& context, const AttentionSinkArgs& args);

/// The largest of many numbers, over several calls: key = max(key, ordered_key(x)) over all
/// elements x (base/integers.h). The key starts at 0. NaN counts as the largest number.
struct Largest {
  Tensor x;    // fp32, any shape; [sequences, heads, query_length] if `real` is given
  Tensor key;  // [1] i32 with the bits of the key, raised to the largest
  // Optional: AttentionArgs::real, whose queries of 0 are ignored. `shape` then gives the queries.
  Tensor real{};
  AttentionShape shape{};
};

void largest(const OpContext& context, const Largest& args);

}  // namespace trainctl
