// The bytes and FLOPs of a call of each operation: the figures by which its time is judged.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "device/stream.h"
#include "ops/kernels.h"

namespace trainctl {

/// Bytes that are read or written once, whatever the kernel does; floating-point operations of
/// matrix products, of attention those that the causal mask leaves.
struct OpCost {
  double bytes = 0;
  double flops = 0;
};

double bytes_of(std::initializer_list<Tensor> tensors);
double flops_of(const MatmulShape& shape);
/// FLOPs of one product for a pair of a query and a key that it sees.
double attention_product_flops(const AttentionShape& shape);

#define KERNEL(entry, Args) OpCost cost_of(const Args& args);
#include "ops/kernels.def"
#undef KERNEL

// The time of each operation, copy and memset of a step while it runs, and the products that it
// makes: the tables of kernels and of stream functions are replaced by ones that look at each call.

/// The kinds of calls in a step that are timed.
enum class OpKind : std::uint8_t { kernel, copy, memset };
const char* name_of(OpKind kind);

/// All calls of one operation in one step.
struct OpRow {
  std::string_view name;
  OpKind kind = OpKind::kernel;
  std::int64_t calls = 0;
  double seconds = 0;
  OpCost cost;
};

/// One call that makes matrix products, as the step makes it: several may be one launch.
struct ProductCall {
  std::vector<MatmulShape> shapes;
  std::function<void(const OpContext&)> run;
};

/// Exists once. Streams and contexts that are made while it does are of the tables that it
/// replaces; they must be gone before it is.
class OpTimes {
 public:
  explicit OpTimes(DeviceKind device);
  ~OpTimes();
  OpTimes(const OpTimes&) = delete;
  OpTimes& operator=(const OpTimes&) = delete;

  /// From now on calls of this thread are timed: on a device by events around each on its stream,
  /// on a CPU by the clock. An operation that is made of others is not timed itself.
  void begin();
  /// The last call was made, and the device has done all: rows by their time, the longest first.
  std::vector<OpRow> end();
  /// From the first timed call to the end of the last, of what end() told.
  double span() const { return span_; }

  /// Calls of this thread that make products are also kept in `list`; null ends that. Operands are
  /// kept as they are: memory that must still be there where they are run again.
  void record(std::vector<ProductCall>* list) { products_ = list; }

  // For the functions of the tables.
  static OpTimes* of_thread();
  bool looks() const { return timing_ || products_ != nullptr; }
  std::size_t enter(std::string_view name, OpKind kind, const OpCost& cost, void* native);
  /// Whether the call was none that is made of others.
  bool leave(std::size_t call, void* native);
  void note(ProductCall product);

 private:
  using Clock = std::chrono::steady_clock;
  struct Call;
  std::size_t mark(void* native);
  double seconds(std::size_t mark) const;

  DeviceKind device_;
  bool timing_ = false;
  double span_ = 0;
  std::vector<ProductCall>* products_ = nullptr;
  std::vector<Call> calls_;
  std::vector<std::size_t> open_;  // calls that are being made
  std::vector<void*> marks_;       // of a device
  std::vector<Clock::time_point> times_;
  std::size_t used_ = 0;
};

}  // namespace trainctl
