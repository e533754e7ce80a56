// The bytes and FLOPs of a call of each operation: the figures by which its time is judged.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "config/schema/choices.h"
#include "device/stream.h"
#include "ops/kernels.h"

namespace trainctl {

/// Bytes that any kernel must read or write at least once; floating-point operations of matrix
/// products, for attention only of pairs under the causal mask.
struct OpCost {
  double bytes = 0;
  double flops = 0;
};

double bytes_of(std::initializer_list<Tensor> tensors);
double flops_of(const MatmulShape& shape);
/// FLOPs of one of attention's matrix products, over all pairs of a query and a key that it sees.
double attention_product_flops(const AttentionShape& shape);

#define KERNEL(entry, Args) OpCost cost_of(const Args& args);
#include "ops/kernels.def"
#undef KERNEL

// The time of each operation, copy and memset of a step while it runs, and the products that it
// makes: tables that observe each call replace those of kernels and of stream functions.

/// The kinds of calls in a step that are timed.
using OpKind = OneOf<"kernel|copy|memset">;

/// All calls of one operation in one step.
struct OpRow {
  std::string_view name;
  OpKind kind{};
  std::int64_t calls = 0;
  double seconds = 0;
  OpCost cost;
};

/// One call that makes matrix products, as the step makes it: several may be one launch.
struct ProductCall {
  std::vector<MatmulShape> shapes;
  std::function<void(const OpContext&)> run;
};

/// At most one exists. Streams and contexts created during its life use its tables, and must be
/// destroyed before it.
class OpTimes {
 public:
  explicit OpTimes(DeviceKind device);
  ~OpTimes();
  OpTimes(const OpTimes&) = delete;
  OpTimes& operator=(const OpTimes&) = delete;

  /// From now on calls of this thread are timed: on a device by events around each on its stream,
  /// on a CPU by the clock. An operation made of other operations is not timed itself.
  void begin();
  /// Call when the device has done all calls. Returns the rows by their time, the longest first.
  std::vector<OpRow> end();
  /// Seconds from the first timed call to the end of the last, as of end().
  double span() const { return span_; }

  /// From now on also stores this thread's calls that make products in `list`; null stops that.
  /// Operands are not copied: their memory must still exist when a call is repeated.
  void record(std::vector<ProductCall>* list) { products_ = list; }

  // Used by the functions of the tables.
  static OpTimes* of_thread();
  bool looks() const { return timing_ || products_ != nullptr; }
  std::size_t enter(std::string_view name, OpKind kind, const OpCost& cost, void* native);
  /// Whether the call is not made of other calls.
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
  std::vector<std::size_t> open_;  // calls in progress
  std::vector<void*> marks_;       // marks of a device
  std::vector<Clock::time_point> times_;
  std::size_t used_ = 0;
};

}  // namespace trainctl
