// The optimizer's operations: parameter updates, sums of squares of gradients, and the verdict
// about a step.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/kinds.h"
#include "device/slab.h"
#include "device/stream.h"
#include "device/tensor.h"
#include "ops/context.h"
#include "ops/random_rounding.h"

namespace trainctl {

// Many independent calls of one op, done together: a device needs only a few launches. Lists are
// built before the first step; running them allocates and copies nothing.

/// The largest number of pieces of a list. For more elements, the size of pieces grows; it depends
/// on the numbers of elements alone.
inline constexpr std::int64_t max_pieces = std::int64_t{1} << 17;
inline constexpr std::int64_t min_piece = 4096;

/// Cuts calls into pieces of equal size; the last piece of a call may have fewer elements.
/// `elements` has one number per call. Sets `size` to the elements of a piece. Returns the index of
/// the first piece of each call, then one entry more: the number of all pieces. Throws
/// Error{unavailable} for over max_pieces / 2 calls.
std::vector<std::int64_t> cut_into_pieces(std::span<const std::int64_t> elements,
                                          std::int64_t& size);

/// The calls as device kernels read them; `calls` and `first` are in device memory.
template <class Args>
struct PlacedCalls {
  const Args* calls = nullptr;
  const std::int64_t* first = nullptr;  // index of the first piece of each call
  std::int64_t count = 0;               // number of calls
  std::int64_t pieces = 0;
  std::int64_t piece = 0;  // elements of a piece
};

/// A list of calls. Args is an op's arguments; a function elements_of(args) must exist.
template <class Args>
class Calls {
 public:
  static_assert(std::is_trivially_copyable_v<Args>);

  Calls() = default;
  /// The memory that the arguments point to must outlive this object. With a device `stream`, a
  /// copy of the list for kernels is enqueued there.
  explicit Calls(std::vector<Args> list, Stream* stream = nullptr) : list_(std::move(list)) {
    if (stream != nullptr && stream->device() == DeviceKind::cuda && !list_.empty()) place(*stream);
  }

  std::span<const Args> list() const { return list_; }
  /// The calls in device memory; empty without a device.
  const PlacedCalls<Args>& placed() const { return placed_; }

 private:
  void place(Stream& stream) {
    std::vector<std::int64_t> elements;
    for (const Args& args : list_) elements.push_back(elements_of(args));
    std::int64_t piece = 0;
    const std::vector<std::int64_t> first = cut_into_pieces(elements, piece);
    const auto count = static_cast<std::int64_t>(list_.size());
    const std::vector<SlabRow> rows{
        {"calls", {count * static_cast<std::int64_t>(sizeof(Args))}, DType::u8},
        {"first", {count}, DType::i64}};
    on_host_ = Slab::on_host_for(DeviceKind::cuda, rows);
    on_device_ = Slab(DeviceKind::cuda, rows);
    std::memcpy(on_host_.at("calls").data, list_.data(), list_.size() * sizeof(Args));
    std::copy_n(first.begin(), count, on_host_.at("first").template as<std::int64_t>());
    stream.copy(on_device_.bytes(), on_host_.bytes());
    placed_ = {.calls = static_cast<const Args*>(on_device_.at("calls").data),
               .first = on_device_.at("first").template elements<std::int64_t>(),
               .count = count,
               .pieces = first.back(),
               .piece = piece};
  }

  std::vector<Args> list_;
  Slab on_host_, on_device_;  // on_host_ must live until the copy is complete
  PlacedCalls<Args> placed_;
};

/// Implements a kernel for many calls by a kernel for a single call.
template <class Args, void (*kernel)(const OpContext&, const Args&)>
void each_call(const OpContext& context, const Calls<Args>& calls) {
  for (const Args& args : calls.list()) kernel(context, args);
}

// One step of an elementwise optimizer; g = grad * clip_coefficient. The formulas are rules in
// update_rules.h. With found_inf nothing is written. The parameter, and states of some rules, may
// be bf16: then new values are computed in fp32 from the stored ones and rounded at random
// (random_rounding.h).

/// Constants that rules read in addition to StepState; each rule reads some.
struct UpdateConstants {
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;
  float momentum = 0;
  bool nesterov = false;
  bool coupled = false;                     // adds the decay to the gradient
  float scale = 1;                          // multiplies the learning rate, not the decay
  float rate_factor = 1, decay_factor = 1;  // multiply the step's learning rate and decay
};

struct Update {
  UpdateRule rule = UpdateRule::adamw;
  Tensor parameter;  // [n] fp32 or bf16, updated
  Tensor gradient;   // [n] fp32 or bf16
  /// Each [n], updated; one per state of the rule, fp32, or bf16 if the rule allows.
  std::array<Tensor, 2> states{};
  Tensor compute{};  // optional [n] bf16 or fp16: rounded copy of the new fp32 parameter
  UpdateConstants constants{};
  bool decay = false;  // apply state->weight_decay
  RandomRounding rounding{};
  const float* factor = nullptr;     // for the rule `scale`: in device memory
  const StepState* state = nullptr;  // seed, step, learning_rate, weight_decay, bias corrections,
                                     // clip_coefficient, found_inf
};

constexpr std::int64_t elements_of(const Update& args) { return args.parameter.shape.numel(); }

/// All calls of a list must have the same rule.
void update(const OpContext& context, const Calls<Update>& calls);

// *result += sum of x^2, in double, over fixed blocks of elements in order (4096 on the CPU),
// independent of the number of threads. Calls with the same result add to it in their order.

struct SquareSum {
  Tensor x;                  // [n] fp32 or bf16
  double* result = nullptr;  // device memory
};

constexpr std::int64_t elements_of(const SquareSum& args) { return args.x.shape.numel(); }

void square_sum(const OpContext& context, const Calls<SquareSum>& calls);

// Decides about a step from the sums of squares of all ranks, so that all ranks decide alike:
//   found_inf = some sum is not finite
//   grad_norm = sqrt(sum of the first column) / loss_scale
//   clip_coefficient = min(1, limit / (grad_norm + 1e-6)) / loss_scale
// The loss scale moves as in Megatron-Core's DynamicGradScaler.

/// Each found_inf reduces hysteresis by one; at 0 the scale is multiplied by backoff, but does not
/// fall below `least`. After `window` consecutive updates the scale is multiplied by growth, if it
/// stays below 2^64, and hysteresis is reset.
struct StepVerdict {
  Tensor square_sums;  // [ranks, 2] f64: StepState::square_sums of every rank
  double limit = 0;    // limit of the norm; no limit if 0
  double growth = 1;   // the scale is constant if growth and backoff are 1
  double backoff = 1;
  double least = 1;
  std::int64_t window = 1;
  std::int64_t hysteresis = 1;
  StepState* state = nullptr;  // updated
};

void step_verdict(const OpContext& context, const StepVerdict& args);

}  // namespace trainctl
