#include "verify/record.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "device/slab.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

/// Casts a message between unit `cut` and the next to the messages' dtype and back, as Pipeline
/// does at its two ends.
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
      const int end = plan.map.at(stage, chunk).end;
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

namespace {

template <class T>
std::vector<float> floats_of(const Tensor& of_device) {
  const HostValues on_host(of_device);
  const Tensor& tensor = on_host.values();
  std::vector<float> floats(static_cast<std::size_t>(tensor.numel()));
  std::transform(tensor.as<T>(), tensor.as<T>() + tensor.numel(), floats.begin(),
                 [](T value) { return to_float(value); });
  return floats;
}

template <class Get>
WholeTensors record(const ParamStore& store, Get get) {
  WholeTensors tensors;
  int index = 0;
  for (const ParamSpec& spec : store.table()) tensors[spec.name] = values_of(get(index++));
  return tensors;
}

}  // namespace

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

double difference_of(double found, double expected) {
  const double difference = std::abs(found - expected);
  return std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
}

std::vector<float> values_of(const Tensor& tensor) {
  if (tensor.dtype == DType::bf16) return floats_of<bf16>(tensor);
  if (tensor.dtype == DType::f16) return floats_of<fp16>(tensor);
  return floats_of<float>(tensor);
}

void set_values(const Tensor& tensor, std::vector<float>& values) {
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  const OpContext ops{.kernels = &kernels_for(DeviceKind::cpu), .stream = &stream};
  const HostValues to(tensor);
  cast(ops, {.x = host_tensor(values.data(), std::ssize(values)),
             .y = to.values().view({tensor.numel()})});
  to.store();
}

std::vector<float> rounded(std::vector<float> values, DType dtype) {
  if (dtype == DType::f32) return values;
  std::vector<std::byte> narrow(values.size() * static_cast<std::size_t>(size_of(dtype)));
  const Tensor tensor{narrow.data(), {std::ssize(values)}, dtype, DeviceKind::cpu};
  set_values(tensor, values);
  return values_of(tensor);
}

HeldPart whole_part(const Tensor& shard) { return {shard, {0, shard.numel()}}; }

HeldPart held_part(const ParamStore& store, int parameter, int kind) {
  const Tensor values = kind == 0 ? store.master(parameter) : store.state(parameter, kind - 1);
  if (values.empty()) return {{nullptr, {0}, DType::f32, DeviceKind::cpu}, {0, 0}};
  return {values, store.owned(parameter)};
}

RecordedState record_state(const ParamStore& store, int optimizer_states) {
  RecordedState state;
  for (int kind = 0; kind <= optimizer_states; ++kind) {
    state.push_back(record(store, [&](int i) { return held_part(store, i, kind).values; }));
  }
  return state;
}

WholeTensors record_gradients(const ParamStore& store) {
  return record(store, [&](int i) { return store.gradient(i); });
}

void scale_gradients(const ParamStore& store, double factor) {
  for (int i = 0; i < std::ssize(store.table()); ++i) {
    const Tensor gradient = store.gradient(i);
    if (gradient.numel() == 0) continue;
    std::vector<float> values = values_of(gradient);
    for (float& value : values) value = static_cast<float>(value * factor);
    set_values(gradient, values);
  }
}

std::vector<RecordedStream> empty_streams(const ModelShape& model, std::int64_t sequences) {
  std::vector<RecordedStream> streams;
  const auto add = [&](const std::string& name) {
    RecordedStream& stream = streams.emplace_back();
    stream.name = name;
    stream.shape = {sequences, model.seq_length, model.hidden};
    stream.values.resize(static_cast<std::size_t>(stream.shape.numel()));
  };
  add("embedding");
  for (std::int64_t i = 0; i < model.layers; ++i) add("layers." + std::to_string(i));
  add("final_norm");
  return streams;
}

void record_part(RecordedStream& stream, std::int64_t begin, const Tensor& part) {
  const std::vector<float> values = values_of(part);
  std::copy(values.begin(), values.end(), stream.values.begin() + begin);
  stream.largest = std::max(stream.largest, largest_of(values));
}

void record_rounding(RecordedStream& stream, std::int64_t begin, const Tensor& part) {
  const std::vector<float> exact = values_of(part);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const float rounded = stream.values[static_cast<std::size_t>(begin) + i];
    stream.rounding = std::max(stream.rounding, difference_of(double{exact[i]}, double{rounded}));
  }
}

double largest_of(const WholeTensors& tensors) {
  double largest = 0;
  for (const auto& [name, values] : tensors) largest = std::max(largest, largest_of(values));
  return largest;
}

std::map<std::string, double> distances(const WholeTensors& one, const WholeTensors& other) {
  std::map<std::string, double> largest;
  for (const auto& [name, values] : one) {
    const std::vector<float>& others = other.at(name);
    double& distance = largest[name];
    for (std::size_t i = 0; i < values.size(); ++i) {
      distance = std::max(distance, difference_of(double{values[i]}, double{others[i]}));
    }
  }
  return largest;
}

void load_part(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
               const std::vector<float>& whole, const HeldPart& held, std::int64_t first) {
  if (held.part.length() == 0) return;
  std::vector<float> values = values_of(held.values);
  for (const BoxRun& piece : pieces_in(spec, mesh, rank, held.part)) {
    const std::int64_t skipped = std::clamp<std::int64_t>(first - piece.from, 0, piece.length);
    std::copy_n(whole.begin() + piece.from + skipped, piece.length - skipped,
                values.begin() + piece.to + skipped);
  }
  set_values(held.values, values);
}

std::vector<float> part_before(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
                               const HeldPart& held, std::int64_t end) {
  if (held.part.length() == 0) return {};
  std::vector<float> values = values_of(held.values);
  for (const BoxRun& piece : pieces_in(spec, mesh, rank, held.part)) {
    const std::int64_t kept = std::clamp<std::int64_t>(end - piece.from, 0, piece.length);
    std::fill(values.begin() + piece.to + kept, values.begin() + piece.to + piece.length, 0.0F);
  }
  return values;
}

void for_routed_tokens(const Tensor& tokens, const Tensor& logits, std::int64_t first,
                       std::int64_t count, const TakeLogits& take) {
  const HostValues on_host(tokens);
  const auto* const number = on_host.values().as<std::int64_t>();
  for (std::int64_t row = 0; row < tokens.numel();) {
    const std::int64_t token = number[row] - first;
    std::int64_t end = row + 1;
    while (end < tokens.numel() && number[end] == number[row] + end - row) ++end;
    if (token >= 0 && token + end - row <= count) {
      take(token * logits.columns(), logits.slice(row, end));
    }
    row = end;
  }
}

void for_step_tokens(const Plan& plan, std::int64_t step, const Tensor& tokens,
                     const Tensor& logits, const TakeLogits& take) {
  const std::int64_t first = samples_in(plan.ramp, step) * plan.model.seq_length;
  for_routed_tokens(tokens, logits, first, plan.after(step).tokens_per_step(), take);
}

std::vector<RecordedStream> empty_routers(const ModelShape& model, std::int64_t sequences) {
  std::vector<RecordedStream> routers(static_cast<std::size_t>(model.layers));
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!model.kind(layer).experts) continue;
    RecordedStream& router = routers[static_cast<std::size_t>(layer)];
    router.name = "layers." + std::to_string(layer);
    router.shape = {sequences, model.seq_length, model.experts};
    router.values.resize(static_cast<std::size_t>(router.shape.numel()));
  }
  return routers;
}

std::int64_t expert_logits(const ModelShape& model) {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (model.kind(layer).experts) count += model.experts;
  }
  return count;
}

std::int64_t tokens_of(const RecordedStream& router) { return router.shape[0] * router.shape[1]; }

void route_as_recorded(const RecordedStream& router, std::int64_t begin, const Tensor& rows) {
  const auto first = router.values.begin() + begin;
  std::vector<float> recorded(first, first + rows.numel());
  set_values(rows, recorded);
}

}  // namespace trainctl
