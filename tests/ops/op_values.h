// For op tests on the host: tensors with random values, a context with scratch, comparison and
// finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "base/scratch.h"
#include "ops/kernels.h"
#include "tested_kernels.h"

namespace op_test {

using namespace trainctl;

/// The element types of activations.
inline constexpr DType float_types[] = {DType::f32, DType::bf16, DType::f16};

/// Memory aligned to 64 bytes, without slack at the end that would hide a write too far.
class Memory {
 public:
  explicit Memory(std::int64_t bytes) : blocks_(static_cast<std::size_t>(bytes + 64)) {}
  std::byte* data() {
    const auto at = reinterpret_cast<std::uintptr_t>(blocks_.data());
    return blocks_.data() + (64 - at % 64) % 64;
  }

 private:
  std::vector<std::byte> blocks_;
};

/// With TRAINCTL_HASH_VALUES set, the program ends with a line that has a hash of what all Values
/// of its first thread held in the end: scripts/compare_golden.sh compares those of two builds.
void hash_values(const std::vector<std::byte>& bytes);

/// Bytes that are hashed when they go.
class HashedBytes : public std::vector<std::byte> {
 public:
  using std::vector<std::byte>::vector;
  HashedBytes(const HashedBytes&) = default;
  HashedBytes(HashedBytes&&) = default;
  HashedBytes& operator=(const HashedBytes&) = default;
  HashedBytes& operator=(HashedBytes&&) = default;
  ~HashedBytes() {
    if (!empty()) hash_values(*this);
  }
};

/// A host tensor that owns its elements; copies are deep.
class Values {
 public:
  Values(const Shape& shape, DType dtype)
      : shape_(shape),
        dtype_(dtype),
        bytes_(static_cast<std::size_t>(shape.numel() * size_of(dtype))) {}
  /// Normally distributed fp32, bf16 or fp16 elements.
  static Values random(const Shape& shape, DType dtype, std::uint64_t stream, float deviation = 1);
  template <class T>
  static Values of(const std::vector<T>& elements) {
    Values values(Shape{static_cast<std::int64_t>(elements.size())}, dtype_of<T>);
    std::memcpy(values.bytes_.data(), elements.data(), values.bytes_.size());
    return values;
  }

  Tensor tensor() { return Tensor{bytes_.data(), shape_, dtype_, DeviceKind::cpu}; }
  std::int64_t numel() const { return shape_.numel(); }
  double at(std::int64_t i) const {
    const std::byte* from = bytes_.data() + i * size_of(dtype_);
    if (dtype_ == DType::bf16) return read<bf16>(from);
    if (dtype_ == DType::f16) return read<fp16>(from);
    return read<float>(from);
  }
  void set(std::int64_t i, float value) {
    std::byte* to = bytes_.data() + i * size_of(dtype_);
    if (dtype_ == DType::bf16) return write<bf16>(to, value);
    if (dtype_ == DType::f16) return write<fp16>(to, value);
    write<float>(to, value);
  }
  bool operator==(const Values& other) const {
    return bytes_.size() == other.bytes_.size() &&
           std::memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
  }

 private:
  template <class T>
  static double read(const std::byte* from) {
    T element;
    std::memcpy(&element, from, sizeof element);
    return to_float(element);
  }
  template <class T>
  static void write(std::byte* to, float value) {
    const T element = from_float<T>(value);
    std::memcpy(to, &element, sizeof element);
  }

  Shape shape_;
  DType dtype_;
  HashedBytes bytes_;
};

/// The largest |got - expected| over the largest |expected|, which counts as `least` where it is
/// smaller; infinite where an element is not finite.
double difference(const Values& got, const Values& expected, double least = 1e-30);

/// The allowed difference between fast and plain results.
inline double tolerance(DType dtype) {
  if (dtype == DType::f32) return 2e-6;
  return dtype == DType::bf16 ? 1e-2 : 1e-2 / 8;  // fp16 has three more bits
}

/// A context on the given kernels; sets the calling thread's count of compute threads. Hosts of one
/// thread share their scratch.
class Host {
 public:
  explicit Host(const Kernels& kernels, int threads = 2) {
    // Kept: new pages for each host would take longer than what most tests do with them.
    thread_local std::map<int, Memory> scratch;
    Memory& mine = scratch.try_emplace(threads, scratch_bytes_per_thread * threads).first->second;
    set_thread_count(threads);
    context_.kernels = &kernels;
    context_.scratch = mine.data();
    context_.scratch_bytes = scratch_bytes_per_thread * threads;
    poison_scratch();
  }
  const OpContext& context() const { return context_; }

  /// NaNs of every type: no op may depend on what scratch holds.
  void poison_scratch() const {
    std::fill_n(context_.scratch, context_.scratch_bytes, std::byte{0xff});
  }

 private:
  OpContext context_;
};

/// A list of one call.
template <class Args>
Calls<Args> one(const Args& args) {
  return Calls<Args>(std::vector<Args>{args});
}

/// sum of y[i] * weight[i]: a loss whose gradient with respect to y is `weight`.
inline double weighted_sum(const Values& y, const Values& weight) {
  double sum = 0;
  for (std::int64_t i = 0; i < y.numel(); ++i) sum += y.at(i) * weight.at(i);
  return sum;
}

/// The largest gap between `gradient` and the central difference of loss() at each element of `x`,
/// over the largest gradient.
template <class Loss>
double slope_error(Values& x, const Values& gradient, float step, const Loss& loss) {
  double apart = 0;
  double size = 1e-30;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const auto middle = static_cast<float>(x.at(i));
    x.set(i, middle + step);
    const double above = loss();
    x.set(i, middle - step);
    const double below = loss();
    x.set(i, middle);
    const double slope = (above - below) / (2.0 * step);
    apart = std::max(apart, std::abs(slope - gradient.at(i)));
    size = std::max(size, std::abs(gradient.at(i)));
  }
  return apart / size;
}

/// The message of the Error{internal} that call() throws; "" if it throws none.
template <class Call>
std::string failure_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ExitCode::internal ? error.what() : "";
  }
  return "";
}

/// A step state that AdamW reads.
inline StepState adamw_step_state() {
  StepState state;
  state.learning_rate = 0.01F;
  state.weight_decay = 0.1F;
  state.bias_correction1 = 0.271F;
  state.bias_correction2 = 0.0297F;
  state.clip_coefficient = 0.5F;
  return state;
}

/// A rate and a decay that are powers of two, so that their products are exact.
inline StepState binary_step_state() {
  StepState state;
  state.learning_rate = 0x1p-7F;
  state.weight_decay = 0.125F;
  return state;
}

inline bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

}  // namespace op_test
