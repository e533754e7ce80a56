// cuDNN's functions, descriptors, and graphs of operations built with them.
#pragma once

#include <cudnn_graph.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace trainctl::cuda {

// cuDNN's functions, loaded on first use, so that the module also works on a machine without cuDNN.

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

/// Opens the library once per process: the file TRAINCTL_CUDNN_LIBRARY if set, else libcudnn.so.9
/// from the loader's path. Throws Error{unavailable} with the loader's message if it is missing.
const Cudnn& cudnn();

/// Throws Error{unavailable} with the call and cuDNN's message unless `status` is success.
void check_cudnn(cudnnStatus_t status, const char* call);

// An owned descriptor of cuDNN's backend API.

/// All functions throw Error{unavailable} with cuDNN's message if it refuses.
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

  /// `values` has `count` elements of the C type that cuDNN documents for `type`.
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
  /// Returns raw().
  cudnnBackendDescriptor_t finalize();
  /// Gets at most `room` elements; returns the number that exist.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, void* values,
                   std::int64_t room) const;
  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

// A graph of cuDNN operations between tensors with four extents [sequences, heads, rows, columns],
// and the plan that executes it.

using Extents = std::array<std::int64_t, 4>;

/// The strides of a tensor without gaps.
Extents packed(const Extents& extents);

class CudnnGraph {
 public:
  struct Value {
    cudnnBackendDescriptor_t tensor = nullptr;
    Extents extents{};
  };

  /// A tensor in device memory, 16-byte aligned, bound to `id` at each execution.
  Value memory(std::int64_t id, cudnnDataType_t type, const Extents& extents,
               const Extents& strides);
  /// Packed fp32 in the library's own element order, to which a product adds in any order.
  Value accumulator(std::int64_t id, const Extents& extents);
  /// A single fp32 number on the host, bound to `id` at each execution.
  Value number(std::int64_t id);
  /// An intermediate value between two operations.
  Value inner(const Extents& extents, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Value inner(const Extents& extents, const Extents& strides, cudnnDataType_t type);

  /// to = a b. If b has fewer heads, several heads of a share one of b.
  void multiply(const Value& a, const Value& b, const Value& to);
  /// An elementwise operation, computed in type `computed`; extents of 1 are broadcast. For an
  /// index operation, `axis` is the indexed axis.
  void each(cudnnPointwiseMode_t mode, std::initializer_list<Value> from, const Value& to,
            cudnnDataType_t computed = CUDNN_DATA_FLOAT, std::int64_t axis = -1);
  /// Writes the result to a new fp32 value with the first operand's extents.
  Value each(cudnnPointwiseMode_t mode, std::initializer_list<Value> from);
  Value index(const Value& of, std::int64_t axis);
  /// Reduces over the axes whose extents are smaller in `to`.
  void reduce(cudnnReduceTensorOp_t how, const Value& from, const Value& to);
  /// Reinterprets the elements with other extents and strides.
  void reshape(const Value& from, const Value& to);

  /// Finishes the graph of all previous operations; no more may be added. Its plan is the first one
  /// proposed by the library that it also accepts; with `ordered`, only plans with results that are
  /// equal in every run. Throws Error{unavailable} with the last refusal if there is none.
  void make_plan(const Descriptor& device, bool ordered);
  const Descriptor& plan() const { return plan_; }
  std::int64_t workspace_bytes() const { return workspace_bytes_; }

 private:
  /// The caller sets the other attributes and finalizes it.
  Descriptor& tensor(std::int64_t id, cudnnDataType_t type, const Extents& extents,
                     const Extents& strides, bool is_inner = false);
  Descriptor& keep(cudnnBackendDescriptorType_t type);

  std::vector<Descriptor> kept_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  Descriptor graph_, plan_;
  std::int64_t workspace_bytes_ = 0;
  std::int64_t next_inner_ = 1000;
};

/// The properties of the calling thread's device or, if `json` is not empty, of the device that it
/// describes, so that plans can be checked without the device.
Descriptor device_properties(const std::string& json);

}  // namespace trainctl::cuda
