// Attention by cuDNN: plans made before the first step, and executed part by part
// (base/attention_part.h).

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/scratch.h"
#include "device/cuda_check.h"
#include "ops/cuda/cudnn/graph.h"
#include "ops/cuda/kernels.h"

namespace trainctl::cuda {
namespace {

// Causal attention as graphs of operations, in the form that cuDNN's attention engines recognize.

/// The sizes that a graph depends on. Tensors have rows with all heads; it uses some heads.
struct CudnnAttention {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  std::int64_t sequences = 0, length = 0;        // numbers in one execution
  std::int64_t heads = 0, kv_heads = 0;          // numbers in one execution
  std::int64_t row_heads = 0, row_kv_heads = 0;  // numbers in a whole row
  std::int64_t head_dim = 0;
  bool ordered = true;  // the backward pass sums in a fixed order
  friend bool operator==(const CudnnAttention&, const CudnnAttention&) = default;
};

/// Identifiers of the tensors and numbers that an execution binds.
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

/// The strides of a [sequences * length, row_heads * head_dim] tensor.
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

/// Packed sums, which exist per execution; an execution with some of the heads has one sequence.
Value sums(CudnnGraph& graph, const CudnnAttention& a, std::int64_t id) {
  return graph.memory(id, CUDNN_DATA_FLOAT, sum_extents(a), packed(sum_extents(a)));
}

/// Replaces the scores of keys after the query by id_unseen, the lowest number.
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

/// d_out . out per query, stored in memory, because the products before and after it run as
/// separate kernels.
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

namespace {

// Older versions want another number for unseen keys, and 9.10 has faulty backward passes.
constexpr std::int64_t min_version = 91100;

struct Ready {
  int device = 0;
  AttentionExtents extents;
  DType dtype = DType::bf16;
  AttentionExtents part;  // of the backward pass
  CudnnGraph forward, backward;
};

/// The cache between calls, shared by the threads of ranks. The lock is held while parts are
/// enqueued, because a handle has only one stream.
struct Kept {
  std::mutex mutex;
  std::unordered_map<int, cudnnHandle_t> handles;  // one per device
  std::vector<std::unique_ptr<const Ready>> ready;
};

Kept& kept() {
  static Kept* all = new Kept;  // never destroyed, as the driver may be gone by then
  return *all;
}

CudnnAttention graph_extents(const AttentionExtents& all, const AttentionExtents& part,
                             DType dtype) {
  return {.type = dtype == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF,
          .sequences = part.sequences,
          .length = all.length,
          .heads = part.heads,
          .kv_heads = part.kv_heads,
          .row_heads = all.heads,
          .row_kv_heads = all.kv_heads,
          .head_dim = all.head_dim,
          .ordered = all.ordered};
}

/// The bytes of the backward pass in addition to the library's workspace.
std::int64_t local_bytes(const AttentionExtents& part) {
  return attention_mean_bytes(part) + attention_sum_bytes(part);
}

/// The larger of the bytes that the two passes need.
std::int64_t needed_bytes(const Ready& ready) {
  return std::max(ready.forward.workspace_bytes(),
                  local_bytes(ready.part) + ready.backward.workspace_bytes());
}

/// Throws if the plans need more memory than attention_bytes(part).
Ready make_ready(const AttentionExtents& extents, const AttentionExtents& part, DType dtype,
                 const Descriptor& device) {
  require(dtype != DType::f32, ExitCode::unavailable, "cuDNN has no attention in fp32");
  require(static_cast<std::int64_t>(cudnn().version()) >= min_version, ExitCode::unavailable,
          "cuDNN is older than 9.11");
  Ready made{.extents = extents,
             .dtype = dtype,
             .part = part,
             .forward = forward_graph(graph_extents(extents, extents, dtype)),
             .backward = backward_graph(graph_extents(extents, part, dtype))};
  made.forward.make_plan(device, true);
  made.backward.make_plan(device, extents.ordered);
  const std::int64_t needed = needed_bytes(made);
  require(needed <= attention_bytes(part), ExitCode::unavailable,
          "cuDNN's attention needs " + std::to_string(needed) + " bytes and was planned with " +
              std::to_string(attention_bytes(part)));
  return made;
}

/// The plans prepared with this number of bytes, or null. `bytes` also tells whether sums are
/// ordered.
const Ready* find_ready(int device, AttentionExtents extents, std::int64_t bytes, DType dtype) {
  extents.ordered = is_ordered(bytes);
  for (const auto& one : kept().ready) {
    const bool same = one->device == device && one->extents == extents && one->dtype == dtype;
    if (same && attention_bytes(one->part) == bytes) return one.get();
  }
  return nullptr;
}

std::int64_t cudnn_version() { return static_cast<std::int64_t>(cudnn().version()); }

void prepare(const AttentionExtents& extents, const AttentionExtents& part, DType dtype) {
  const std::lock_guard lock(kept().mutex);
  const int device = current_cuda_device();
  if (find_ready(device, extents, attention_bytes(part), dtype) != nullptr) return;
  cudnnHandle_t& handle = kept().handles[device];
  if (handle == nullptr) check_cudnn(cudnn().create(&handle), "cudnnCreate");
  Ready made = make_ready(extents, part, dtype, device_properties(""));
  made.device = device;
  kept().ready.push_back(std::make_unique<const Ready>(std::move(made)));
}

std::int64_t check(const AttentionExtents& extents, DType dtype, const std::string& json) {
  return needed_bytes(make_ready(extents, attention_part(extents), dtype, device_properties(json)));
}

/// The bytes for cuDNN in the context's scratch; only plans that chose cuDNN reserve these.
std::int64_t room_of(const OpContext& context) {
  return context.scratch_bytes - scratch_bytes(DeviceKind::cuda, 1);
}

/// The plans for a call, or null if it must use our own kernels.
const Ready* ready_for(const OpContext& context, const AttentionArgs& args) {
  const AttentionShape& shape = args.shape;
  const bool whole = shape.query_runs.runs.empty() && shape.key_runs.runs.empty() &&
                     shape.query_offset == 0 && shape.query_length == shape.key_length;
  const bool usual = !shape.limits.any() && shape.cap == 0 && args.first_position.empty();
  if (!whole || !usual || args.dropout.key.probability != 0) return nullptr;
  return find_ready(
      current_cuda_device(),
      {shape.sequences, shape.query_length, shape.heads, shape.kv_heads, shape.head_dim},
      room_of(context), args.q.dtype);
}

/// The offsets of a part's first sequence and head, in elements, and its temporary memory.
struct Place {
  std::int64_t queries, keys, sums;
  std::byte* scratch;
};

struct Binding {
  std::int64_t id;
  void* data;
};
constexpr std::size_t max_bindings = 14;

void* at(const Tensor& tensor, std::int64_t offset) {
  return static_cast<std::byte*>(tensor.data) + offset * size_of(tensor.dtype);
}

void execute(cudnnHandle_t handle, const CudnnGraph& graph, std::span<const Binding> given,
             std::byte* workspace) {
  std::array<std::int64_t, max_bindings> ids{};
  std::array<void*, max_bindings> data{};
  const std::size_t count = given.size();
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = given[i].id;
    data[i] = given[i].data;
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data.data(), count);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace);
  pack.finalize();
  check_cudnn(cudnn().execute(handle, graph.plan().raw(), pack.raw()), "cudnnBackendExecute");
}

/// Calls run(handle, place) for each part of the call, on its stream.
template <class Run>
void each_part(const OpContext& context, const Ready& ready, const AttentionExtents& one,
               const Run& run) {
  const AttentionExtents& all = ready.extents;
  const cudnnHandle_t handle = kept().handles.at(ready.device);
  auto* stream = static_cast<cudaStream_t>(context.stream->native());
  check_cudnn(cudnn().set_stream(handle, stream), "cudnnSetStream");
  for (std::int64_t sequence = 0; sequence < all.sequences; sequence += one.sequences) {
    const std::int64_t token = sequence * all.length;
    for (std::int64_t part = 0; part * one.heads < all.heads; ++part) {
      const std::int64_t head = part * one.heads;
      run(handle, Place{(token * all.heads + head) * all.head_dim,
                        (token * all.kv_heads + part * one.kv_heads) * all.head_dim,
                        (sequence * all.heads + head) * all.length,
                        context.scratch + scratch_bytes(DeviceKind::cuda, 1)});
    }
  }
}

float unseen = -std::numeric_limits<float>::infinity();
float one = 1;

void forward(const OpContext& context, const AttentionArgs& args, const Ready& ready) {
  float scale = args.shape.scale;
  each_part(context, ready, ready.extents, [&](cudnnHandle_t handle, const Place& place) {
    execute(handle, ready.forward,
            std::array<Binding, 7>{{{id_q, at(args.q, place.queries)},
                                    {id_k, at(args.k, place.keys)},
                                    {id_v, at(args.v, place.keys)},
                                    {id_out, at(args.out, place.queries)},
                                    {id_logsumexp, at(args.logsumexp, place.sums)},
                                    {id_scale, &scale},
                                    {id_unseen, &unseen}}},
            place.scratch);
  });
}

void backward(const OpContext& context, const AttentionArgs& args, const Ready& ready) {
  float scale = args.shape.scale;
  const std::int64_t means = attention_mean_bytes(ready.part);
  const std::int64_t sums = attention_sum_bytes(ready.part);
  auto* stream = static_cast<cudaStream_t>(context.stream->native());
  each_part(context, ready, ready.part, [&](cudnnHandle_t handle, const Place& place) {
    std::byte* const sum = place.scratch + means;
    if (sums > 0) CUDA_CHECK(cudaMemsetAsync(sum, 0, static_cast<std::size_t>(sums), stream));
    const std::array<Binding, max_bindings> given{{{id_q, at(args.q, place.queries)},
                                                   {id_k, at(args.k, place.keys)},
                                                   {id_v, at(args.v, place.keys)},
                                                   {id_out, at(args.out, place.queries)},
                                                   {id_logsumexp, at(args.logsumexp, place.sums)},
                                                   {id_d_out, at(args.d_out, place.queries)},
                                                   {id_dq, at(args.dq, place.queries)},
                                                   {id_dk, at(args.dk, place.keys)},
                                                   {id_dv, at(args.dv, place.keys)},
                                                   {id_mean, place.scratch},
                                                   {id_scale, &scale},
                                                   {id_unseen, &unseen},
                                                   {id_one, &one},
                                                   {id_dq_sum, sum}}};
    const std::size_t count = given.size() - (ready.extents.ordered ? 1 : 0);
    execute(handle, ready.backward, std::span(given).first(count), sum + sums);
  });
}

/// Runs the call if cuDNN can; returns whether it did.
bool by_cudnn(const OpContext& context, const AttentionArgs& args,
              void (*run)(const OpContext&, const AttentionArgs&, const Ready&)) {
  if (room_of(context) <= 0) return false;
  const std::lock_guard lock(kept().mutex);
  const Ready* ready = ready_for(context, args);
  if (ready != nullptr) run(context, args, *ready);
  return ready != nullptr;
}

}  // namespace

void chosen_attention_forward(const OpContext& context, const AttentionArgs& args) {
  if (!by_cudnn(context, args, forward)) cuda::attention_forward(context, args);
}

/// dq must not share memory with d_out, which cuDNN still reads after it has written some of dq.
void chosen_attention_backward(const OpContext& context, const AttentionArgs& args) {
  if (args.dq.data != args.d_out.data && by_cudnn(context, args, backward)) return;
  cuda::attention_backward(context, args);
}

const CudaAttention attention_part_of_module{
    .version = cudnn_version, .prepare = prepare, .check = check};

}  // namespace trainctl::cuda
