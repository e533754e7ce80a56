// The functions of cuDNN that the CUDA module opens, with checks of what the library would refuse
// and some that it would not make: a descriptor is used only once it is final, operands are whole
// allocations and aligned, and the workspace is as large as was said and the library's own. It
// proposes two engines, first one whose sums have no fixed order. With CUDA_ON_HOST_CUDNN=refuses
// it takes no plan, and with fails nothing can be executed.
#include <cudnn_graph.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "graph_values.h"
#include "machine.h"
#include "planted.h"

using namespace cuda_on_host;

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace {

struct Descriptor;

struct Attribute {
  cudnnBackendAttributeType_t type{};
  std::int64_t count = 0;
  std::vector<std::byte> bytes{};
  std::vector<std::shared_ptr<const Descriptor>> descriptors{};
};

struct Descriptor {
  cudnnBackendDescriptorType_t kind{};
  std::map<int, Attribute> attributes{};
  bool is_final = false;
  Graph graph{};            // of an operation graph, and of what is made from it
  std::int64_t number = 0;  // of an engine
  std::int64_t workspace_bytes = 0;

  const Attribute* find(int name) const {
    const auto found = attributes.find(name);
    return found == attributes.end() ? nullptr : &found->second;
  }
  template <class T>
  T value(int name, T otherwise = {}) const {
    const Attribute* found = find(name);
    if (found != nullptr && found->bytes.size() >= sizeof(T)) {
      std::memcpy(&otherwise, found->bytes.data(), sizeof(T));
    }
    return otherwise;
  }
  template <class T>
  std::vector<T> values(int name) const {
    const Attribute* found = find(name);
    if (found == nullptr) return {};
    std::vector<T> all(static_cast<std::size_t>(found->count));
    std::memcpy(all.data(), found->bytes.data(), all.size() * sizeof(T));
    return all;
  }
  const Descriptor* other(int name) const {
    const Attribute* found = find(name);
    return found == nullptr || found->descriptors.empty() ? nullptr : found->descriptors[0].get();
  }
};

/// The object that a cudnnBackendDescriptor_t points to.
struct Handle {
  std::shared_ptr<Descriptor> descriptor = std::make_shared<Descriptor>();
};

Descriptor& of(cudnnBackendDescriptor_t raw) { return *static_cast<Handle*>(raw)->descriptor; }

thread_local std::string last_words;

cudnnStatus_t refuse(cudnnStatus_t status, const std::string& why) {
  last_words = why;
  return status;
}

bool is_told(const char* what) {
  const char* told = std::getenv("CUDA_ON_HOST_CUDNN");
  return told != nullptr && std::strcmp(told, what) == 0;
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE: return 8;
    default: return 4;
  }
}

GraphTensor tensor_of(const Descriptor& made) {
  GraphTensor tensor{
      .id = made.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, -1),
      .type = made.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
      .is_inner = made.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
      .by_value = made.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE),
      .adds = made.value<cudnnBackendTensorReordering_t>(CUDNN_ATTR_TENSOR_REORDERING_MODE) ==
              CUDNN_TENSOR_REORDERING_F16x16};
  const auto extents = made.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto strides = made.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  for (std::size_t i = 0; i < 4 && i < extents.size() && i < strides.size(); ++i) {
    tensor.extents[i] = extents[i];
    tensor.strides[i] = strides[i];
  }
  return tensor;
}

struct OperationForm {
  GraphOperation::Kind kind;
  std::vector<int> from;
  int to, how, mode;
};

/// By the kind of descriptor.
const std::map<int, OperationForm>& operation_forms() {
  static const std::map<int, OperationForm> forms{
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
       {GraphOperation::Kind::multiply,
        {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
        CUDNN_ATTR_OPERATION_MATMUL_CDESC,
        CUDNN_ATTR_OPERATION_MATMUL_DESC,
        0}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {GraphOperation::Kind::each,
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
         CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
        CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
        CUDNN_ATTR_POINTWISE_MODE}},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
       {GraphOperation::Kind::reduce,
        {CUDNN_ATTR_OPERATION_REDUCTION_XDESC},
        CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
        CUDNN_ATTR_OPERATION_REDUCTION_DESC,
        CUDNN_ATTR_REDUCTION_OPERATOR}},
      {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
       {GraphOperation::Kind::reshape,
        {CUDNN_ATTR_OPERATION_RESHAPE_XDESC},
        CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
        0,
        0}}};
  return forms;
}

/// Empty where all is there.
std::string read_operation(const Descriptor& made, Graph& graph) {
  const auto form = operation_forms().find(made.kind);
  if (form == operation_forms().end()) return "an operation that is not known on the host";
  GraphOperation step{.kind = form->second.kind};
  for (const int name : form->second.from) {
    if (made.other(name) != nullptr) step.from.push_back(tensor_of(*made.other(name)));
  }
  const std::size_t least = step.kind == GraphOperation::Kind::multiply ? 2 : 1;
  if (step.from.size() < least || made.other(form->second.to) == nullptr) {
    return "an operation lacks a tensor";
  }
  step.to = tensor_of(*made.other(form->second.to));
  if (const Descriptor* how = made.other(form->second.how); how != nullptr) {
    step.mode = how->value<int>(form->second.mode);
    step.axis = how->value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1);
  }
  graph.push_back(step);
  return "";
}

/// As cuDNN's for a backward pass: gradients of keys of every head where heads share them; and
/// scores in 16 bits, where sums have a fixed order.
std::int64_t workspace_of(const Graph& graph) {
  std::int64_t scores = 0;
  std::int64_t shared = 0;
  int products = 0;
  bool ordered = true;
  for (const GraphOperation& step : graph) {
    ordered = ordered && !step.to.adds;
    if (step.kind == GraphOperation::Kind::multiply && products++ == 0) scores = step.to.numel();
    const bool over_heads =
        step.kind == GraphOperation::Kind::reduce && step.from[0].extents[1] != step.to.extents[1];
    if (over_heads) shared += step.from[0].numel();
  }
  return products > 2 ? 2 * ((ordered ? scores : 0) + shared) : 0;
}

std::string finalize_graph(Descriptor& made) {
  const Attribute* operations = made.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (operations == nullptr) return "a graph without operations";
  for (const auto& operation : operations->descriptors) {
    const std::string flaw = read_operation(*operation, made.graph);
    if (!flaw.empty()) return flaw;
  }
  return flaw_of(made.graph);
}

std::string finalize(Descriptor& made) {
  switch (made.kind) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(made);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      const Descriptor* graph = made.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
      if (graph == nullptr || made.other(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP) == nullptr) {
        return "advice without a graph or a device";
      }
      made.graph = graph->graph;
      return "";
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const Descriptor* config = made.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
      if (config == nullptr || made.other(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) == nullptr) {
        return "a plan without an engine or a device";
      }
      if (is_told("refuses")) return "no plan, as CUDA_ON_HOST_CUDNN says";
      made.graph = config->graph;
      made.workspace_bytes = workspace_of(made.graph);
      return "";
    }
    default: return "";
  }
}

/// The values given for an execution.
struct Given {
  std::map<std::int64_t, void*> data;
  std::map<std::int64_t, float> numbers;
  std::byte* workspace = nullptr;
};

/// Empty if all outer tensors are there, whole, on a device and aligned.
std::string read_given(const Descriptor& plan, const Descriptor& pack, Given& given) {
  const auto ids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto data = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  if (ids.size() != data.size()) return "the numbers of ids and pointers differ";
  const auto tensors = outer_tensors(plan.graph);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto tensor = tensors.find(ids[i]);
    if (tensor == tensors.end()) return "a tensor that the graph does not have";
    if (tensor->second.by_value) {
      given.numbers[ids[i]] = *static_cast<const float*>(data[i]);
      continue;
    }
    const std::size_t element = tensor->second.type == CUDNN_DATA_FLOAT ? 4 : 2;
    const std::byte* begin = nullptr;
    const auto bytes = static_cast<std::size_t>(tensor->second.reach()) * element;
    if (Machine::get().find(data[i], &begin) == nullptr ||
        !Machine::get().is_whole(data[i], bytes) ||
        reinterpret_cast<std::uintptr_t>(data[i]) % 16 != 0) {
      return "tensor " + std::to_string(ids[i]) + " is not within one allocation, or not aligned";
    }
    given.data[ids[i]] = data[i];
  }
  if (given.data.size() + given.numbers.size() != tensors.size()) return "a tensor is missing";
  given.workspace = pack.value<std::byte*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const auto bytes = static_cast<std::size_t>(plan.workspace_bytes);
  const std::byte* begin = nullptr;
  if (bytes > 0 && (Machine::get().find(given.workspace, &begin) == nullptr ||
                    !Machine::get().is_whole(given.workspace, bytes))) {
    return "the workspace is smaller than was said";
  }
  return "";
}

/// Whether the execution before it of the same plan had an operand in the same allocation, before
/// this one's: a call's first part is computed.
bool is_further_part(const Descriptor& plan, const Given& given) {
  static std::map<const Descriptor*, const std::byte*> latest;
  const auto* const data = static_cast<const std::byte*>(given.data.begin()->second);
  const auto* const before = std::exchange(latest[&plan], data);
  const std::byte* begin = nullptr;
  const std::byte* begin_before = nullptr;
  return before != nullptr && before < data && Machine::get().find(data, &begin) != nullptr &&
         Machine::get().find(before, &begin_before) != nullptr && begin == begin_before;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

std::size_t cudnnGetVersion() { return 91900; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "success" : "refused on the host";
}

void cudnnGetLastErrorString(char* words, std::size_t room) {
  std::snprintf(words, room, "%s", last_words.c_str());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = new cudnnContext{Machine::device(), nullptr};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (stream == nullptr || stream->device != handle->device) {
    return refuse(CUDNN_STATUS_BAD_PARAM, "a stream of another device");
  }
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind,
                                           cudnnBackendDescriptor_t* raw) {
  auto* made = new Handle;
  made->descriptor->kind = kind;
  *raw = made;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t raw) {
  delete static_cast<Handle*>(raw);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  if (of(raw).is_final) return refuse(CUDNN_STATUS_BAD_PARAM, "the descriptor is final");
  Attribute attribute{.type = type, .count = count};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto* other = static_cast<Handle*>(static_cast<const cudnnBackendDescriptor_t*>(values)[i]);
      if (!other->descriptor->is_final) {
        return refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor that is not final");
      }
      attribute.descriptors.push_back(other->descriptor);
    }
  } else {
    const auto* bytes = static_cast<const std::byte*>(values);
    attribute.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(type));
  }
  of(raw).attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t raw) {
  const std::string flaw = finalize(of(raw));
  if (!flaw.empty()) return refuse(CUDNN_STATUS_NOT_SUPPORTED, flaw);
  of(raw).is_final = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t raw,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t room,
                                       std::int64_t* count, void* values) {
  const Descriptor& from = of(raw);
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      *count = 2;
      for (std::int64_t i = 0; i < room && i < 2; ++i) {
        Descriptor& config = of(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
        config.graph = from.graph;
        config.number = i;
        config.is_final = true;
      }
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      of(*static_cast<cudnnBackendDescriptor_t*>(values)).number = from.number;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      *count = 1;
      *static_cast<cudnnBackendNumericalNote_t*>(values) =
          from.number == 0 ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                           : CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      std::memcpy(values, &from.workspace_bytes, sizeof from.workspace_bytes);
      return CUDNN_STATUS_SUCCESS;
    default: return refuse(CUDNN_STATUS_NOT_SUPPORTED, "an attribute that is not known");
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t raw_plan,
                                  cudnnBackendDescriptor_t raw_pack) {
  if (is_told("fails")) {
    return refuse(CUDNN_STATUS_EXECUTION_FAILED, "as CUDA_ON_HOST_CUDNN says");
  }
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const std::shared_ptr<const Descriptor> plan = static_cast<Handle*>(raw_plan)->descriptor;
  auto given = std::make_shared<Given>();
  const std::string flaw = read_given(*plan, of(raw_pack), *given);
  if (!flaw.empty()) return refuse(CUDNN_STATUS_BAD_PARAM, flaw);
  if (handle->stream == nullptr) return refuse(CUDNN_STATUS_BAD_PARAM, "no stream was set");
  if (planted("no_last_part") && is_further_part(*plan, *given)) return CUDNN_STATUS_SUCCESS;
  const int device = handle->device;
  machine.count(Enqueued::attention);
  machine.give(handle->stream, [plan, given, device] {
    return Work{[plan, given, device] {
                  // Contents that others keep in the workspace are lost.
                  const auto bytes = static_cast<std::size_t>(plan->workspace_bytes);
                  if (bytes > 0) std::memset(given->workspace, 0xff, bytes);
                  compute(plan->graph, given->data, given->numbers);
                  Machine::get().check_overruns(device);
                  return true;
                },
                nullptr};
  });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
#pragma GCC visibility pop
