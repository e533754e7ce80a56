// cuDNN's functions, its descriptors, and the graphs of operations that are built from them.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace trainctl::cuda {

// cuDNN's functions, from a library that is opened when they are first asked for: a machine without
// it runs the module as well.

struct Cudnn {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_text;
  decltype(&cudnnGetLastErrorString) last_error;
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendSetAttribute) set_attribute;
  decltype(&cudnnBackendGetAttribute) get_attribute;
  decltype(&cudnnBackendExecute) execute;
};

/// Opened once for the process: the file TRAINCTL_CUDNN_LIBRARY names, else libcudnn.so.9 where the
/// loader finds it. Throws Error{unavailable} with the loader's words where there is none.
const Cudnn& cudnn();

/// Throws Error{unavailable} with the call and cuDNN's words unless it returned success.
void check_cudnn(cudnnStatus_t status, const char* call);

// A descriptor of cuDNN's backend, and who destroys it.

/// All calls throw Error{unavailable} with cuDNN's words where it refuses.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Descriptor();

  /// `values`: `count` elements of the C type that cuDNN documents for `type`.
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
           std::int64_t count = 1);
  void set(cudnnBackendAttributeName_t name, std::int64_t value) {
    set(name, CUDNN_TYPE_INT64, &value);
  }
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    set(name, CUDNN_TYPE_DATA_TYPE, &value);
  }
  void set(cudnnBackendAttributeName_t name, bool value) { set(name, CUDNN_TYPE_BOOLEAN, &value); }
  void set(cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value);
  }
  void finalize();
  /// How many elements there are of those that fit.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, void* values,
                   std::int64_t room) const;
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// Builds a graph of cuDNN: operations between tensors of four extents [sequences, heads, rows,
// columns], and the plan by which the library runs it.

using Extents = std::array<std::int64_t, 4>;

/// Strides of a tensor without gaps.
Extents packed(const Extents& extents);

class CudnnGraph {
 public:
  struct Value {
    cudnnBackendDescriptor_t tensor = nullptr;
    Extents extents{};
  };

  /// A tensor in device memory, 16-byte aligned, given under `id` at each execution.
  Value memory(std::int64_t id, cudnnDataType_t type, const Extents& extents,
               const Extents& strides);
  /// Packed fp32 in the library's own order of elements: a product adds to it, in any order.
  Value accumulator(std::int64_t id, const Extents& extents);
  /// One fp32 number of the host, given the same way.
  Value number(std::int64_t id);
  /// A value between two operations.
  Value inner(const Extents& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Value inner(const Extents& extents, const Extents& strides, cudnnDataType_t type);

  /// to = a b; heads of b are shared where it has fewer.
  void multiply(const Value& a, const Value& b, const Value& to);
  /// Elements; extents of 1 are repeated. `computed` is the type of the operation. An index is that
  /// of `axis`.
  void each(cudnnPointwiseMode_t mode, std::initializer_list<Value> from, const Value& to,
            cudnnDataType_t computed = CUDNN_DATA_FLOAT, std::int64_t axis = -1);
  /// Writes the result to a new fp32 value as large as the first operand.
  Value each(cudnnPointwiseMode_t mode, std::initializer_list<Value> from);
  Value index(const Value& of, std::int64_t axis);
  /// Over the extents that are smaller in `to`.
  void reduce(cudnnReduceTensorOp_t how, const Value& from, const Value& to);
  /// Gives the elements other extents and strides.
  void reshape(const Value& from, const Value& to);

  /// Finishes the graph of all operations so far. None may follow.
  const Descriptor& finish();

 private:
  enum class Place : std::uint8_t { memory, accumulator, number, inner };
  Value tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents,
               const Extents& strides, Place place);
  Descriptor& keep(cudnnBackendDescriptorType_t type);

  std::vector<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  Descriptor graph_;
  std::int64_t next_inner_ = 1000;
};

/// The properties of a device: of the calling thread's, or where text is given of that which it
/// describes as JSON, so that a plan can be checked without one.
Descriptor device_properties(const std::string& json);

struct CudnnPlan {
  CudnnGraph graph;  // lives as long as the plan
  Descriptor plan;
  std::int64_t workspace_bytes = 0;
};

/// The first plan that the library proposes for the graph and takes; with `ordered`, one that it
/// computes alike in every run. Throws Error{unavailable} with the last refusal where there is
/// none.
CudnnPlan make_plan(CudnnGraph graph, const Descriptor& device, bool ordered);

}  // namespace trainctl::cuda
