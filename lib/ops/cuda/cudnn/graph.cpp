#include "ops/cuda/cudnn/graph.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "device/cuda_check.h"

namespace trainctl::cuda {
namespace {

std::string loader_words() {
  const char* words = dlerror();
  return words != nullptr ? words : "the loader does not say why";
}

void* open_library() {
  const char* named = std::getenv("TRAINCTL_CUDNN_LIBRARY");
  const std::string file = named != nullptr && *named != '\0' ? named : "libcudnn.so.9";
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, ExitCode::unavailable,
          library != nullptr ? "" : "cuDNN cannot be opened: " + loader_words());
  return library;
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  require(function != nullptr, ExitCode::unavailable,
          "cuDNN has no " + std::string(name) + ": it is older than 9.0");
}

Cudnn open() {
  void* library = open_library();
  Cudnn found{};
  find(library, "cudnnGetVersion", found.version);
  find(library, "cudnnGetErrorString", found.error_text);
  find(library, "cudnnGetLastErrorString", found.last_error);
  find(library, "cudnnCreate", found.create);
  find(library, "cudnnSetStream", found.set_stream);
  find(library, "cudnnBackendCreateDescriptor", found.create_descriptor);
  find(library, "cudnnBackendDestroyDescriptor", found.destroy_descriptor);
  find(library, "cudnnBackendFinalize", found.finalize);
  find(library, "cudnnBackendSetAttribute", found.set_attribute);
  find(library, "cudnnBackendGetAttribute", found.get_attribute);
  find(library, "cudnnBackendExecute", found.execute);
  return found;
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn opened = open();
  return opened;
}

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> words{};
  cudnn().last_error(words.data(), words.size());
  throw Error(ExitCode::unavailable,
              "[cudnn] " + std::string(call) + ": " + cudnn().error_text(status) +
                  (words[0] != '\0' ? " (" + std::string(words.data()) + ")" : std::string()));
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnn().create_descriptor(type, &raw_), "cudnnBackendCreateDescriptor");
}

Descriptor::~Descriptor() {
  if (raw_ != nullptr) cudnn().destroy_descriptor(raw_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     const void* values, std::int64_t count) {
  check_cudnn(cudnn().set_attribute(raw_, name, type, count, values), "cudnnBackendSetAttribute");
}

cudnnBackendDescriptor_t Descriptor::finalize() {
  check_cudnn(cudnn().finalize(raw_), "cudnnBackendFinalize");
  return raw_;
}

std::int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             void* values, std::int64_t room) const {
  std::int64_t count = 0;
  check_cudnn(cudnn().get_attribute(raw_, name, type, room, &count, values),
              "cudnnBackendGetAttribute");
  return count;
}

namespace {

constexpr std::int64_t alignment = 16;  // alignment of tensors, in bytes

}  // namespace

Extents packed(const Extents& extents) {
  return {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], 1};
}

Descriptor& CudnnGraph::keep(cudnnBackendDescriptorType_t type) { return kept_.emplace_back(type); }

Descriptor& CudnnGraph::tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents,
                               const Extents& strides, bool is_inner) {
  Descriptor& made = keep(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, extents.data(), 4);
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides.data(), 4);
  made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_inner);
  return made;
}

CudnnGraph::Value CudnnGraph::memory(std::int64_t id, cudnnDataType_t type, const Extents& extents,
                                     const Extents& strides) {
  return {tensor(id, type, extents, strides).finalize(), extents};
}

CudnnGraph::Value CudnnGraph::accumulator(std::int64_t id, const Extents& extents) {
  Descriptor& made = tensor(id, CUDNN_DATA_FLOAT, extents, packed(extents));
  const cudnnBackendTensorReordering_t order = CUDNN_TENSOR_REORDERING_F16x16;
  made.set(CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE, &order);
  return {made.finalize(), extents};
}

CudnnGraph::Value CudnnGraph::number(std::int64_t id) {
  const Extents one{1, 1, 1, 1};
  Descriptor& made = tensor(id, CUDNN_DATA_FLOAT, one, one);
  made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  return {made.finalize(), one};
}

CudnnGraph::Value CudnnGraph::inner(const Extents& extents, cudnnDataType_t type) {
  return inner(extents, packed(extents), type);
}

CudnnGraph::Value CudnnGraph::inner(const Extents& extents, const Extents& strides,
                                    cudnnDataType_t type) {
  return {tensor(next_inner_++, type, extents, strides, true).finalize(), extents};
}

void CudnnGraph::multiply(const Value& a, const Value& b, const Value& to) {
  Descriptor& how = keep(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  const cudnnBackendDescriptor_t by = how.finalize();
  Descriptor& made = keep(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.tensor);
  made.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.tensor);
  made.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, to.tensor);
  made.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, by);
  operations_.push_back(made.finalize());
}

void CudnnGraph::each(cudnnPointwiseMode_t mode, std::initializer_list<Value> from, const Value& to,
                      cudnnDataType_t computed, std::int64_t axis) {
  Descriptor& how = keep(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &mode);
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, computed);
  if (axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
  const cudnnBackendDescriptor_t by = how.finalize();
  Descriptor& made = keep(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, by);
  constexpr cudnnBackendAttributeName_t operands[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                      CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  const auto* operand = operands;
  for (const Value& value : from) made.set(*operand++, value.tensor);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to.tensor);
  const float one = 1;
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, &one);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, &one);
  operations_.push_back(made.finalize());
}

CudnnGraph::Value CudnnGraph::each(cudnnPointwiseMode_t mode, std::initializer_list<Value> from) {
  const Value to = inner(from.begin()->extents);
  each(mode, from, to);
  return to;
}

CudnnGraph::Value CudnnGraph::index(const Value& of, std::int64_t axis) {
  const Value to = inner(of.extents, CUDNN_DATA_INT32);
  each(CUDNN_POINTWISE_GEN_INDEX, {of}, to, CUDNN_DATA_FLOAT, axis);
  return to;
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t how, const Value& from, const Value& to) {
  Descriptor& by = keep(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  by.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &how);
  by.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  const cudnnBackendDescriptor_t described = by.finalize();
  Descriptor& made = keep(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, described);
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, from.tensor);
  made.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to.tensor);
  operations_.push_back(made.finalize());
}

void CudnnGraph::reshape(const Value& from, const Value& to) {
  Descriptor& made = keep(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, from.tensor);
  made.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to.tensor);
  operations_.push_back(made.finalize());
}

Descriptor device_properties(const std::string& json) {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  if (json.empty()) {
    const std::int32_t number = current_cuda_device();
    device.set(CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, &number);
  } else {
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, json.data(),
               static_cast<std::int64_t>(json.size()));
  }
  device.finalize();
  return device;
}

namespace {

/// The library's proposed engine configurations, best first.
std::vector<Descriptor> proposals(const Descriptor& graph, const Descriptor& device) {
  Descriptor advice(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  advice.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.raw());
  advice.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
  advice.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.raw());
  advice.finalize();
  const std::int64_t count =
      advice.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, nullptr, 0);
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    raw.push_back(found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  }
  const std::int64_t given =
      advice.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw.data(), count);
  found.resize(static_cast<std::size_t>(std::min(count, given)));
  return found;
}

/// Whether the engine's order of sums differs from run to run.
bool varies(const Descriptor& config) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw, 1);
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  const std::int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                        notes.data(), CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::find(notes.begin(), notes.begin() + count, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) !=
         notes.begin() + count;
}

}  // namespace

void CudnnGraph::make_plan(const Descriptor& device, bool ordered) {
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations_.data(),
             static_cast<std::int64_t>(operations_.size()));
  graph_.finalize();
  std::string refusal =
      ordered ? "it proposes no engine that computes alike in every run" : "it proposes no engine";
  for (const Descriptor& config : proposals(graph_, device)) {
    if (ordered && varies(config)) continue;
    try {
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.raw());
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.raw());
      plan.finalize();
      plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &workspace_bytes_, 1);
      plan_ = std::move(plan);
      return;
    } catch (const Error& error) {
      refusal = error.what();
    }
  }
  throw Error(ExitCode::unavailable, "cuDNN has no plan for this attention: " + refusal);
}

}  // namespace trainctl::cuda
