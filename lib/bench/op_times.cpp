#include "bench/op_times.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/at.h"
#include "device/cuda_device.h"
#include "device/replaced_streams.h"
#include "ops/kernel_entries.h"

namespace trainctl {

namespace {

thread_local OpTimes* times_of_thread = nullptr;

// ---- Products, as they can be made again.

template <class Args>
constexpr bool makes_products = false;
template <>
constexpr bool makes_products<Matmul> = true;
template <>
constexpr bool makes_products<MatmulGelu> = true;
template <>
constexpr bool makes_products<MatmulGeluBackward> = true;
template <>
constexpr bool makes_products<MatmulColumnSums> = true;
template <>
constexpr bool makes_products<MatmulBatch> = true;

std::vector<MatmulShape> shapes_of(const Matmul& args) { return {shape_of(args)}; }
std::vector<MatmulShape> shapes_of(const MatmulGelu& args) { return {shape_of(args.up)}; }
std::vector<MatmulShape> shapes_of(const MatmulGeluBackward& args) { return {shape_of(args.dx)}; }
std::vector<MatmulShape> shapes_of(const MatmulColumnSums& args) {
  return {shape_of(args.product)};
}
std::vector<MatmulShape> shapes_of(const MatmulBatch& args) {
  std::vector<MatmulShape> shapes;
  for (const MatmulBatch::One& one : args.list) shapes.push_back(shape_of(one.product));
  return shapes;
}

template <class Args>
ProductCall kept(Kernel<Args> kernel, const Args& args) {
  return {shapes_of(args), [=](const OpContext& context) { kernel(context, args); }};
}
ProductCall kept(Kernel<MatmulBatch> kernel, const MatmulBatch& args) {
  return {shapes_of(args), [kernel, list = std::vector(args.list.begin(), args.list.end())](
                               const OpContext& context) { kernel(context, {.list = list}); }};
}

// ---- The functions of the tables.

template <class Entry>
struct Looked;

template <class Args, Kernel<Args> Kernels::*entry>
struct Looked<std::integral_constant<Kernel<Args> Kernels::*, entry>> {
  static inline std::string_view name;

  static void run(const OpContext& context, const Args& args) {
    const Kernel<Args> kernel = own_kernels(context.stream->device()).*entry;
    OpTimes* times = OpTimes::of_thread();
    if (times == nullptr || !times->looks()) return kernel(context, args);
    void* const native = context.stream->native();
    const std::size_t call =
        times->enter(name_of_call(args, name), OpKind::kernel, cost_of(args), native);
    kernel(context, args);
    const bool whole = times->leave(call, native);
    if constexpr (makes_products<Args>) {
      if (whole) times->note(kept(kernel, args));
    }
  }
};

const Kernels& looked_kernels(DeviceKind device) {
  static Kernels table;
  const Kernels& own = own_kernels(device);
  table = own;
  each_kernel([&](auto entry, std::string_view name) {
    using Entry = std::remove_const_t<decltype(entry)>;
    Looked<Entry>::name = name;
    if (own.*(entry.value) != nullptr) table.*(entry.value) = Looked<Entry>::run;
  });
  return table;
}

template <DeviceKind device, class Work>
void look_at(void* queue, OpKind kind, std::int64_t bytes, const Work& work) {
  const StreamApi& own = own_stream_api(device);
  OpTimes* times = OpTimes::of_thread();
  if (times == nullptr || !times->looks()) return work(own);
  void* const native = own.native(queue);
  const double moved = static_cast<double>(bytes) * (kind == OpKind::copy ? 2 : 1);
  const std::size_t call = times->enter(name_of(kind), kind, {.bytes = moved}, native);
  work(own);
  times->leave(call, native);
}

template <DeviceKind device>
const StreamApi& looked_streams() {
  static StreamApi table;
  table = own_stream_api(device);
  table.copy = [](void* queue, void* to, const void* from, std::int64_t bytes) {
    look_at<device>(queue, OpKind::copy, bytes,
                    [=](const StreamApi& own) { own.copy(queue, to, from, bytes); });
  };
  table.zero = [](void* queue, void* to, std::int64_t bytes) {
    look_at<device>(queue, OpKind::memset, bytes,
                    [=](const StreamApi& own) { own.zero(queue, to, bytes); });
  };
  return table;
}

}  // namespace

const char* name_of(OpKind kind) {
  switch (kind) {
    case OpKind::kernel: return "kernel";
    case OpKind::copy: return "copy";
    case OpKind::memset: return "memset";
  }
  return "";
}

OpTimes* OpTimes::of_thread() { return times_of_thread; }

OpTimes::OpTimes(DeviceKind device) : device_(device) {
  times_of_thread = this;
  replace_kernels(&looked_kernels(device));
  replace_stream_api(device, device == DeviceKind::cuda ? &looked_streams<DeviceKind::cuda>()
                                                        : &looked_streams<DeviceKind::cpu>());
}

OpTimes::~OpTimes() {
  replace_kernels(nullptr);
  replace_stream_api(device_, nullptr);
  times_of_thread = nullptr;
  for (void* one : marks_) cuda_module().release_mark(one);
}

void OpTimes::begin() {
  calls_.clear();
  open_.clear();
  times_.clear();
  used_ = 0;
  timing_ = true;
}

std::size_t OpTimes::mark(void* native) {
  if (device_ == DeviceKind::cpu) {
    times_.push_back(Clock::now());
  } else {
    if (used_ == marks_.size()) marks_.push_back(cuda_module().make_mark());
    cuda_module().set_mark(marks_[used_], native);
  }
  return used_++;
}

double OpTimes::seconds(std::size_t mark) const {
  if (device_ == DeviceKind::cuda) {
    return cuda_module().seconds_between(marks_[0], at(marks_, mark));
  }
  return std::chrono::duration<double>(at(times_, mark) - times_[0]).count();
}

std::size_t OpTimes::enter(std::string_view name, OpKind kind, const OpCost& cost, void* native) {
  const std::size_t call = calls_.size();
  if (!open_.empty()) at(calls_, open_.back()).divided = true;
  open_.push_back(call);
  calls_.push_back({.name = name, .kind = kind, .cost = cost});
  if (timing_) calls_.back().from = mark(native);
  return call;
}

bool OpTimes::leave(std::size_t call, void* native) {
  open_.pop_back();
  if (timing_) at(calls_, call).to = mark(native);
  const bool whole = !at(calls_, call).divided;
  if (!timing_ && open_.empty()) calls_.clear();
  return whole;
}

void OpTimes::note(ProductCall product) {
  if (products_ != nullptr) products_->push_back(std::move(product));
}

std::vector<OpRow> OpTimes::end() {
  timing_ = false;
  std::vector<OpRow> rows;
  span_ = 0;
  for (const Call& call : calls_) {
    span_ = std::max(span_, seconds(call.to));
    if (call.divided) continue;
    auto row = std::ranges::find(rows, call.name, &OpRow::name);
    if (row == rows.end()) {
      row = rows.insert(rows.end(), {.name = call.name, .kind = call.kind, .cost = {}});
    }
    ++row->calls;
    row->seconds += seconds(call.to) - seconds(call.from);
    row->cost.bytes += call.cost.bytes;
    row->cost.flops += call.cost.flops;
  }
  std::ranges::sort(rows, std::ranges::greater{}, &OpRow::seconds);
  return rows;
}

}  // namespace trainctl
