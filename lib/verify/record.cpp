#include "verify/record.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "device/slab.h"
#include "ops/elementwise.h"
#include "ops/kernels.h"
#include "plan/tables/shard.h"

namespace trainctl {

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
    state.kinds.push_back(record(store, [&](int i) { return held_part(store, i, kind).values; }));
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
  for (const ShardPiece& piece : pieces_in(spec, mesh, rank, held.part)) {
    const std::int64_t skipped = std::clamp<std::int64_t>(first - piece.global, 0, piece.length);
    std::copy_n(whole.begin() + piece.global + skipped, piece.length - skipped,
                values.begin() + piece.local + skipped);
  }
  set_values(held.values, values);
}

std::vector<float> part_before(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
                               const HeldPart& held, std::int64_t end) {
  if (held.part.length() == 0) return {};
  std::vector<float> values = values_of(held.values);
  for (const ShardPiece& piece : pieces_in(spec, mesh, rank, held.part)) {
    const std::int64_t kept = std::clamp<std::int64_t>(end - piece.global, 0, piece.length);
    std::fill(values.begin() + piece.local + kept, values.begin() + piece.local + piece.length,
              0.0F);
  }
  return values;
}

}  // namespace trainctl
