#include "verify/message_rounding.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "verify/record.h"

namespace trainctl {

namespace {

/// Casts to the messages' dtype and back, as Pipeline does on the two sides of a message.
class Rounder {
 public:
  explicit Rounder(MessageRounding rounding) : rounding_(std::move(rounding)) {}

  void round_stream(int unit, const Tensor& stream) const { round(unit, stream, 1); }
  /// Which `unit` gives to the one below it.
  void round_gradient(int unit, const Tensor& gradient) const {
    round(unit - 1, gradient, static_cast<float>(rounding_.factor));
  }

 private:
  void round(int cut, const Tensor& values, float factor) const {
    if (!rounding_.cuts.contains(cut)) return;
    std::vector<float> wide = values_of(values);
    std::vector<std::byte> sent(wide.size() * static_cast<std::size_t>(size_of(rounding_.dtype)));
    const Tensor wire{sent.data(), {std::ssize(wide)}, rounding_.dtype, values.device};
    for (float& value : wide) value *= factor;
    set_values(wire, wide);
    wide = values_of(wire);
    for (float& value : wide) value /= factor;
    set_values(values, wide);
  }

  MessageRounding rounding_;
};

}  // namespace

MessageRounding message_rounding(const Plan& plan) {
  if (!plan.messages.casts || plan.message_dtype == DType::f32) return {};
  MessageRounding rounding{.cuts = {}, .dtype = plan.message_dtype, .factor = plan.gradient.factor};
  const ChunkPlaces places = plan.map.places();
  for (int stage = 0; stage < places.stages; ++stage) {
    for (int chunk = 0; chunk < places.chunks; ++chunk) {
      const int end = plan.map.at(stage, chunk).end_unit;
      if (places.sends(stage, chunk)) rounding.cuts.insert(end - 1);
    }
  }
  return rounding;
}

Hooks with_rounding(Hooks hooks, const MessageRounding& rounding) {
  const auto rounder = std::make_shared<const Rounder>(rounding);
  hooks.after_forward = [rounder, next = std::move(hooks.after_forward)](int unit, int microbatch,
                                                                         const Tensor& stream) {
    rounder->round_stream(unit, stream);
    if (next) next(unit, microbatch, stream);
  };
  hooks.after_backward = [rounder, next = std::move(hooks.after_backward)](int unit, int microbatch,
                                                                           const Tensor& gradient) {
    rounder->round_gradient(unit, gradient);
    if (next) next(unit, microbatch, gradient);
  };
  return hooks;
}

}  // namespace trainctl
