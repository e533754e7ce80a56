// Graphs of cuDNN on the host: tensors of four extents and the operations that the CUDA module
// builds attention of, computed in fp32 one after another.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cuda_on_host {

using Extents = std::array<std::int64_t, 4>;

struct GraphTensor {
  std::int64_t id = -1;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Extents extents{}, strides{};
  bool is_inner = false, by_value = false;
  bool adds = false;  // products add to it, in any order

  std::int64_t numel() const { return extents[0] * extents[1] * extents[2] * extents[3]; }
  /// Elements from the first to behind the last.
  std::int64_t reach() const;
  std::int64_t place(std::int64_t element) const;  // of an element in packed order
};

struct GraphOperation {
  enum class Kind { multiply, each, reduce, reshape } kind = Kind::each;
  int mode = 0;  // cudnnPointwiseMode_t or cudnnReduceTensorOp_t
  std::int64_t axis = -1;
  std::vector<GraphTensor> from{};
  GraphTensor to{};
};

using Graph = std::vector<GraphOperation>;

/// The first mistake in the graph that can be seen from the graph alone; empty if there is none.
std::string flaw_of(const Graph& graph);

/// The tensors outside of the graph, each once.
std::map<std::int64_t, GraphTensor> outer_tensors(const Graph& graph);

/// Elements in packed order.
using Elements = std::vector<float>;

/// Reads and writes device memory by `data`, which has a place for each outer tensor that is not a
/// number; `numbers` has these.
void compute(const Graph& graph, const std::map<std::int64_t, void*>& data,
             const std::map<std::int64_t, float>& numbers);

}  // namespace cuda_on_host
