#include "verify/message_rounding.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "verify/record.h"

namespace trainctl {

namespace {

/// Casts to the messages' dtype and back, as Pipeline does on the two sides of a message: what
/// passes from unit `cut` to the next, or back.
void round(const MessageRounding& rounding, int cut, const Tensor& values, float factor) {
  if (!rounding.cuts.contains(cut)) return;
  std::vector<float> wide = values_of(values);
  std::vector<std::byte> sent(wide.size() * static_cast<std::size_t>(size_of(rounding.dtype)));
  const Tensor wire{sent.data(), {std::ssize(wide)}, rounding.dtype, values.device};
  for (float& value : wide) value *= factor;
  set_values(wire, wide);
  wide = values_of(wire);
  for (float& value : wide) value /= factor;
  set_values(values, wide);
}

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
  const auto kept = std::make_shared<const MessageRounding>(rounding);
  return with_rounding(std::move(hooks), [kept]() -> const MessageRounding& { return *kept; });
}

Hooks with_rounding(Hooks hooks, std::function<const MessageRounding&()> now) {
  hooks.after_forward = [now, next = std::move(hooks.after_forward)](int unit, int microbatch,
                                                                     const Tensor& stream) {
    round(now(), unit, stream, 1);
    if (next) next(unit, microbatch, stream);
  };
  hooks.after_backward = [now = std::move(now), next = std::move(hooks.after_backward)](
                             int unit, int microbatch, const Tensor& gradient) {
    round(now(), unit - 1, gradient, static_cast<float>(now().factor));
    if (next) next(unit, microbatch, gradient);
  };
  return hooks;
}

}  // namespace trainctl
