#include "bench/op_times.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/at.h"
#include "config/schema/words.h"
#include "device/cuda_device.h"
#include "device/stream.h"
#include "ops/kernel_entries.h"

namespace trainctl {

namespace {

OpCost moves(std::initializer_list<Tensor> tensors) { return {.bytes = bytes_of(tensors)}; }

OpCost sum(const OpCost& one, const OpCost& other) {
  return {one.bytes + other.bytes, one.flops + other.flops};
}

/// Bytes of a tensor to which results are added: it is read and written.
double twice(const Tensor& tensor) { return 2 * bytes_of({tensor}); }

template <class Args, class Cost>
OpCost of_all(const Calls<Args>& calls, const Cost& cost) {
  OpCost all;
  for (const Args& args : calls.list()) all = sum(all, cost(args));
  return all;
}

}  // namespace

double bytes_of(std::initializer_list<Tensor> tensors) {
  double total = 0;
  for (const Tensor& tensor : tensors) {
    if (!tensor.empty()) total += static_cast<double>(tensor.bytes());
  }
  return total;
}

double flops_of(const MatmulShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

double attention_product_flops(const AttentionShape& shape) {
  const auto queries = static_cast<double>(shape.query_length);
  const auto keys = static_cast<double>(shape.key_length);
  // A rank with a part of the keys sees the same part of the pairs.
  const double pairs = static_cast<double>(shape.sequences * shape.heads) *
                       std::min(queries, keys) * (std::max(queries, keys) + 1) / 2;
  return 2 * pairs * static_cast<double>(shape.head_dim);
}

OpCost cost_of(const Matmul& args) {
  const double result = args.accumulate ? twice(args.c) : bytes_of({args.c});
  return {bytes_of({args.a, args.b, args.bias}) + result, flops_of(shape_of(args))};
}
OpCost cost_of(const FusedMatmul& args) {
  const bool sums = args.other.shape.rank() == 1;  // column sums, which are read and written
  const double other = sums ? twice(args.other) : bytes_of({args.other});
  return sum(cost_of(args.product), {.bytes = other});
}
OpCost cost_of(const MatmulBatch& args) {
  OpCost all;
  for (const FusedMatmul& one : args) all = sum(all, cost_of(one));
  return all;
}

OpCost cost_of(const NormForward& args) {
  const Tensor written = args.residual.empty() ? Tensor{} : args.sum;
  return moves({args.x, args.residual, written, args.y, args.mean, args.rstd});
}
OpCost cost_of(const NormBackward& args) {
  return moves({args.dy, args.x, args.d_residual, args.dx, args.mean, args.rstd});
}
OpCost cost_of(const NormSums& args) { return moves({args.x, args.dy, args.sums}); }

OpCost cost_of(const ActivationArgs& args) {
  return moves({args.x, args.up, args.y, args.dy, args.dx, args.dup});
}
OpCost cost_of(const Add& args) { return moves({args.a, args.b, args.y}); }
OpCost cost_of(const ScaledSum& args) { return moves({args.x, args.y, args.z}); }
OpCost cost_of(const Largest& args) { return moves({args.x}); }
OpCost cost_of(const CopyRows& args) {
  return {.bytes = 2.0 * static_cast<double>(args.rows * args.length * size_of(args.x.dtype))};
}
OpCost cost_of(const Cast& args) { return moves({args.x, args.y}); }
OpCost cost_of(const BiasGradient& args) { return {.bytes = bytes_of({args.dy}) + twice(args.db)}; }
OpCost cost_of(const Dropout& args) { return {.bytes = twice(args.x)}; }
OpCost cost_of(const Rope& args) { return {.bytes = twice(args.x)}; }

OpCost cost_of(const AttentionArgs& args) {
  if (args.d_out.empty()) {
    return {bytes_of({args.q, args.k, args.v, args.out, args.logsumexp}),
            2 * attention_product_flops(args.shape)};
  }
  return {bytes_of({args.q, args.k, args.v, args.out, args.d_out, args.dq, args.dk, args.dv}),
          5 * attention_product_flops(args.shape)};
}
OpCost cost_of(const AttentionMerge& args) {
  return {.bytes = twice(args.out) + bytes_of({args.other})};
}
OpCost cost_of(const AttentionSinkArgs& args) {
  if (args.d_out.empty()) return {.bytes = twice(args.out) + twice(args.logsumexp)};
  return moves({args.out, args.logsumexp, args.d_out});
}

OpCost cost_of(const EmbeddingArgs& args) {
  if (args.dy.empty()) {
    const double written = args.accumulate ? twice(args.y) : bytes_of({args.y});
    return {.bytes = written + bytes_of({args.y})};
  }
  const double rows = static_cast<double>(args.dy.numel()) * size_of(args.dtable.dtype);
  return {.bytes = bytes_of({args.dy}) + 2 * rows};
}

OpCost cost_of(const RouterForward& args) {
  return moves({args.logits, args.chosen, args.weight, args.slot});
}
OpCost cost_of(const RouterBackward& args) {
  return moves({args.logits, args.chosen, args.d_weight, args.d_logits});
}
OpCost cost_of(const RouterLosses& args) {
  return {.bytes = bytes_of({args.logits, args.chosen}) + twice(args.d_logits)};
}

/// Reads or writes one row for each token, and one for each slot.
OpCost cost_of(const MoveRows& args) {
  const double width = static_cast<double>(args.x.columns() * size_of(args.x.dtype));
  return {.bytes = width * static_cast<double>(args.slot.rows() + args.slot.numel())};
}
OpCost cost_of(const ScaleRows& args) { return moves({args.x, args.y, args.dy, args.dx}); }
OpCost cost_of(const BiasRows& args) { return {.bytes = twice(args.y) + bytes_of({args.dy})}; }

OpCost cost_of(const CrossEntropyCombine& args) { return moves({args.shards, args.whole}); }
OpCost cost_of(const CrossEntropyArgs& args) {
  if (args.weight.empty()) return moves({args.logits});
  return {.bytes = args.forward_only ? bytes_of({args.target}) : twice(args.logits)};
}

OpCost cost_of(const Calls<Update>& args) {
  return of_all(args, [](const Update& one) {
    const double kept = twice(one.parameter) + twice(one.states[0]) + twice(one.states[1]);
    return OpCost{.bytes = kept + bytes_of({one.gradient, one.compute})};
  });
}
OpCost cost_of(const Calls<SquareSum>& args) {
  return of_all(args, [](const SquareSum& one) { return moves({one.x}); });
}
OpCost cost_of(const StepVerdict& args) { return moves({args.square_sums}); }
OpCost cost_of(const NormalFill& args) { return moves({args.x}); }
OpCost cost_of(const SwapBlocks& args) { return moves({args.x, args.y}); }

namespace {

thread_local OpTimes* times_of_thread = nullptr;

// ---- Products, in a form that can be repeated.

template <class Args>
constexpr bool makes_products = false;
template <>
constexpr bool makes_products<Matmul> = true;
template <>
constexpr bool makes_products<FusedMatmul> = true;
template <>
constexpr bool makes_products<MatmulBatch> = true;

std::vector<MatmulShape> shapes_of(const Matmul& args) { return {shape_of(args)}; }
std::vector<MatmulShape> shapes_of(const FusedMatmul& args) { return {shape_of(args.product)}; }
std::vector<MatmulShape> shapes_of(const MatmulBatch& args) {
  std::vector<MatmulShape> shapes;
  for (const FusedMatmul& one : args) shapes.push_back(shape_of(one.product));
  return shapes;
}

template <class Args>
ProductCall kept(Kernel<Args> kernel, const Args& args) {
  return {shapes_of(args), [=](const OpContext& context) { kernel(context, args); }};
}
ProductCall kept(Kernel<MatmulBatch> kernel, const MatmulBatch& args) {
  return {shapes_of(args), [kernel, list = std::vector(args.begin(), args.end())](
                               const OpContext& context) { kernel(context, list); }};
}

// ---- The functions of the tables that observe calls.

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
        times->enter(name_of_call(args, name), "kernel", cost_of(args), native);
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
  const double moved = static_cast<double>(bytes) * (kind == "copy" ? 2 : 1);
  const std::size_t call = times->enter(word_of(kind), kind, {.bytes = moved}, native);
  work(own);
  times->leave(call, native);
}

template <DeviceKind device>
const StreamApi& looked_streams() {
  static StreamApi table;
  table = own_stream_api(device);
  table.copy = [](void* queue, void* to, const void* from, std::int64_t bytes) {
    look_at<device>(queue, "copy", bytes,
                    [=](const StreamApi& own) { own.copy(queue, to, from, bytes); });
  };
  table.zero = [](void* queue, void* to, std::int64_t bytes) {
    look_at<device>(queue, "memset", bytes,
                    [=](const StreamApi& own) { own.zero(queue, to, bytes); });
  };
  return table;
}

}  // namespace

OpTimes* OpTimes::of_thread() { return times_of_thread; }

struct OpTimes::Call {
  std::string_view name;
  OpKind kind;
  OpCost cost;
  bool divided = false;          // made of other calls, so not timed itself
  std::size_t from = 0, to = 0;  // numbers of marks
};

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
