// Causal attention as graphs of cuDNN, in the operations that its attention engines recognise.
#pragma once

#include "ops/cuda/cudnn/graph.h"

namespace trainctl::cuda {

/// What a graph depends on. Tensors have rows of all heads; the graph takes some of them.
struct CudnnAttention {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  std::int64_t sequences = 0, length = 0;        // of one execution
  std::int64_t heads = 0, kv_heads = 0;          // of one execution
  std::int64_t row_heads = 0, row_kv_heads = 0;  // of a row
  std::int64_t head_dim = 0;
  bool ordered = true;  // the backward pass adds up in one order
  friend bool operator==(const CudnnAttention&, const CudnnAttention&) = default;
};

/// Under which each tensor and number is given at an execution.
enum CudnnAttentionId : std::int64_t {
  id_q = 1,
  id_k,
  id_v,
  id_out,
  id_logsumexp,
  id_scale,
  id_unseen,
  id_one,
  id_d_out,
  id_dq,
  id_dk,
  id_dv,
  id_mean,
  id_dq_sum
};

/// out and logsumexp (natural logarithm) of q, k and v.
CudnnGraph forward_graph(const CudnnAttention& attention);
/// dq, dk and dv. id_mean: fp32 [sequences, heads, length], overwritten with d_out . out. Unless
/// ordered, id_dq_sum: fp32 [sequences, heads, length, head_dim], zeroes to which blocks of keys
/// add; from a tensor of this form the library knows that it need not keep gradients of scores.
CudnnGraph backward_graph(const CudnnAttention& attention);

}  // namespace trainctl::cuda
