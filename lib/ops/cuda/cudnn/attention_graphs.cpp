#include "ops/cuda/cudnn/attention_graphs.h"

#include <utility>

namespace trainctl::cuda {
namespace {

using Value = CudnnGraph::Value;

Extents query_extents(const CudnnAttention& a) {
  return {a.sequences, a.heads, a.length, a.head_dim};
}

Extents key_extents(const CudnnAttention& a) {
  return {a.sequences, a.kv_heads, a.length, a.head_dim};
}

Extents sum_extents(const CudnnAttention& a) { return {a.sequences, a.heads, a.length, 1}; }

Extents score_extents(const CudnnAttention& a) {
  return {a.sequences, a.heads, a.length, a.length};
}

/// Of a tensor [sequences * length, row_heads * head_dim].
Extents row_strides(const CudnnAttention& a, std::int64_t row_heads) {
  const std::int64_t row = row_heads * a.head_dim;
  return {a.length * row, a.head_dim, row, 1};
}

Value queries(CudnnGraph& graph, const CudnnAttention& a, std::int64_t id) {
  return graph.memory(id, a.type, query_extents(a), row_strides(a, a.row_heads));
}

Value keys(CudnnGraph& graph, const CudnnAttention& a, std::int64_t id) {
  return graph.memory(id, a.type, key_extents(a), row_strides(a, a.row_kv_heads));
}

Extents transposed(Extents extents) {
  std::swap(extents[2], extents[3]);
  return extents;
}

Value keys_transposed(CudnnGraph& graph, const CudnnAttention& a, std::int64_t id) {
  return graph.memory(id, a.type, transposed(key_extents(a)),
                      transposed(row_strides(a, a.row_kv_heads)));
}

/// Of an execution only: one of some heads has one sequence.
Value sums(CudnnGraph& graph, const CudnnAttention& a, std::int64_t id) {
  return graph.memory(id, CUDNN_DATA_FLOAT, sum_extents(a), packed(sum_extents(a)));
}

/// Scores of keys after a query become id_unseen, the least number.
Value causal(CudnnGraph& graph, const Value& scores) {
  const Value row = graph.index(scores, 2);
  const Value column = graph.index(scores, 3);
  const Value seen = graph.inner(scores.extents, CUDNN_DATA_BOOLEAN);
  graph.each(CUDNN_POINTWISE_CMP_GE, {row, column}, seen, CUDNN_DATA_BOOLEAN);
  return graph.each(CUDNN_POINTWISE_BINARY_SELECT, {scores, graph.number(id_unseen), seen});
}

}  // namespace

CudnnGraph forward_graph(const CudnnAttention& a) {
  CudnnGraph graph;
  Value scores = graph.inner(score_extents(a));
  graph.multiply(queries(graph, a, id_q), keys_transposed(graph, a, id_k), scores);
  scores = graph.each(CUDNN_POINTWISE_MUL, {scores, graph.number(id_scale)});
  scores = causal(graph, scores);
  const Value highest = graph.inner(sum_extents(a));
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, highest);
  const Value below = graph.each(CUDNN_POINTWISE_SUB, {scores, highest});
  const Value grown = graph.each(CUDNN_POINTWISE_EXP, {below});
  const Value sum = graph.inner(sum_extents(a));
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, grown, sum);
  const Value log = graph.each(CUDNN_POINTWISE_LOG, {sum});
  graph.each(CUDNN_POINTWISE_ADD, {highest, log}, sums(graph, a, id_logsumexp));
  const Value chances = graph.inner(score_extents(a), a.type);
  graph.each(CUDNN_POINTWISE_DIV, {grown, sum}, chances);
  graph.multiply(chances, keys(graph, a, id_v), queries(graph, a, id_out));
  return graph;
}

namespace {

/// to = from^T other, summed over the query heads that share a key head.
void add_key_gradient(CudnnGraph& graph, const CudnnAttention& a, const Value& from,
                      const Value& other, const Value& to) {
  const Extents strides = transposed(packed(score_extents(a)));
  const Value turned = graph.inner(score_extents(a), strides, a.type);
  graph.reshape(from, turned);
  if (a.heads == a.kv_heads) return graph.multiply(turned, other, to);
  const Value all = graph.inner(query_extents(a), a.type);
  graph.multiply(turned, other, all);
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, all, to);
}

/// d_out . out of every query, in memory: the products before and after it are kernels of their
/// own.
Value mean_of(CudnnGraph& graph, const CudnnAttention& a, const Value& d_out) {
  const Value both = graph.inner(query_extents(a));
  graph.each(CUDNN_POINTWISE_MUL, {d_out, queries(graph, a, id_out)}, both);
  const Value sum = graph.inner(sum_extents(a));
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, both, sum);
  const Value mean = sums(graph, a, id_mean);
  graph.each(CUDNN_POINTWISE_MUL, {sum, graph.number(id_one)}, mean);
  return mean;
}

}  // namespace

CudnnGraph backward_graph(const CudnnAttention& a) {
  CudnnGraph graph;
  const Value q = queries(graph, a, id_q);
  const Value k = keys_transposed(graph, a, id_k);
  const Value d_out = queries(graph, a, id_d_out);
  const Value scale = graph.number(id_scale);
  const Value mean = mean_of(graph, a, d_out);

  Value scores = graph.inner(score_extents(a));
  graph.multiply(q, k, scores);
  scores = graph.each(CUDNN_POINTWISE_MUL, {scores, scale});
  scores = graph.each(CUDNN_POINTWISE_SUB, {scores, sums(graph, a, id_logsumexp)});
  scores = causal(graph, scores);
  const Value chances = graph.each(CUDNN_POINTWISE_EXP, {scores});
  add_key_gradient(graph, a, chances, d_out, keys(graph, a, id_dv));

  Value gradients = graph.inner(score_extents(a));
  graph.multiply(d_out, keys_transposed(graph, a, id_v), gradients);
  gradients = graph.each(CUDNN_POINTWISE_SUB, {gradients, mean});
  gradients = graph.each(CUDNN_POINTWISE_MUL, {gradients, chances});
  gradients = graph.each(CUDNN_POINTWISE_MUL, {gradients, scale});
  add_key_gradient(graph, a, gradients, q, keys(graph, a, id_dk));

  const Value straight = graph.inner(key_extents(a), row_strides(a, a.row_kv_heads), a.type);
  graph.reshape(k, straight);
  const Value dq = queries(graph, a, id_dq);
  if (a.ordered) {
    graph.multiply(gradients, straight, dq);
  } else {
    const Value sum = graph.accumulator(id_dq_sum, query_extents(a));
    graph.multiply(gradients, straight, sum);
    graph.each(CUDNN_POINTWISE_IDENTITY, {sum}, dq);
  }
  return graph;
}

}  // namespace trainctl::cuda
