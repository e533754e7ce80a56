#include "verify/record.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/fp16.h"
#include "ops/cast.h"
#include "ops/kernels.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

template <class T>
std::vector<float> floats_of(const Tensor& tensor) {
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

double largest_of(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

const char* word_of_phase(Phase phase) {
  constexpr const char* words[] = {"initial parameter",
                                   "loaded parameter",
                                   "loaded optimizer state 1 of",
                                   "loaded optimizer state 2 of",
                                   "activation",
                                   "loss",
                                   "gradient",
                                   "grad norm",
                                   "loss scale",
                                   "scaler state",
                                   "parameter",
                                   "optimizer state 1 of",
                                   "optimizer state 2 of"};
  return words[static_cast<std::size_t>(phase)];
}

/// Not a number is infinitely wrong, whatever the scale.
double error_of(double difference, double scale) {
  if (difference == 0) return 0;
  const double error = difference / scale;
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

double difference_of(double found, double expected) {
  const double difference = std::abs(found - expected);
  return std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
}

std::vector<std::int64_t> index_of(std::int64_t element, const Shape& shape) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (int dim = shape.rank() - 1; dim >= 0; --dim) {
    index[static_cast<std::size_t>(dim)] = element % shape[dim];
    element /= shape[dim];
  }
  return index;
}

/// Gradients are made from the last unit to the first and, within a unit, from the last row of the
/// table to the first; that of a tied embedding is whole at the very end. All else in any order.
std::int64_t place_of(const Findings::Subject& subject, const ParamSpec& spec) {
  constexpr std::int64_t most_rows = 1 << 20;
  const std::int64_t unit = spec.two_homes ? 0 : spec.unit;
  const std::int64_t place = unit * most_rows + subject.row;
  return subject.phase == Phase::gradient ? -place : place;
}

}  // namespace

struct Findings::Whole {
  const std::string& name;
  const Shape& shape;
  double largest;  // of its absolute values
  std::int64_t place;
};

struct Findings::Farthest {
  double difference = -1;
  double found = 0;
  double expected = 0;
  std::int64_t at = -1;  // in the whole tensor

  /// Elements [begin, begin + count) of the whole tensor.
  void look(const float* own, const float* whole, std::int64_t begin, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = double{own[i]};
      const double other = double{whole[begin + i]};
      const double distance = difference_of(value, other);
      if (distance > difference) *this = {distance, value, other, begin + i};
    }
  }
};

std::string Departure::place() const {
  std::string text = what + (tensor.empty() ? "" : " " + tensor);
  for (std::size_t i = 0; i < index.size(); ++i) {
    text += (i == 0 ? "[" : ", ") + std::to_string(index[i]);
  }
  return text + (index.empty() ? "" : "]") + ", step " + std::to_string(step);
}

std::vector<float> values_of(const Tensor& tensor) {
  if (tensor.dtype == DType::bf16) return floats_of<bf16>(tensor);
  if (tensor.dtype == DType::f16) return floats_of<fp16>(tensor);
  return floats_of<float>(tensor);
}

void set_values(const Tensor& tensor, std::vector<float>& values) {
  Stream stream(DeviceKind::cpu, "values", Stream::Mode::run_inline);
  const OpContext ops{.kernels = &kernels_for(DeviceKind::cpu), .stream = &stream};
  cast(ops,
       {.x = host_tensor(values.data(), std::ssize(values)), .y = tensor.view({tensor.numel()})});
}

HeldPart whole_part(const Tensor& shard) { return {shard, {0, shard.numel()}}; }

HeldPart held_part(const ParamStore& store, int parameter, int kind) {
  const Tensor values = kind == 0 ? store.master(parameter) : store.state(parameter, kind - 1);
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
  for (const ShardPiece& piece : pieces_in(spec, mesh, rank, held.part)) {
    const std::int64_t skipped = std::clamp<std::int64_t>(first - piece.global, 0, piece.length);
    std::memcpy(held.values.as<float>() + piece.local + skipped,
                whole.data() + piece.global + skipped,
                static_cast<std::size_t>(piece.length - skipped) * sizeof(float));
  }
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

void Findings::compare(const Subject& subject, const ParamSpec& spec,
                       const std::vector<float>& whole, const HeldPart& held) {
  Farthest farthest;
  for (const ShardPiece& piece : pieces_in(spec, mesh_, rank_, held.part)) {
    farthest.look(held.values.as<float>() + piece.local, whole.data(), piece.global, piece.length);
  }
  if (farthest.at < 0) return;
  take(subject, {spec.name, spec.global_shape, largest_of(whole), place_of(subject, spec)},
       farthest);
}

void Findings::compare(const Subject& subject, const RecordedStream& whole, std::int64_t begin,
                       const Tensor& part) {
  assert(begin + part.numel() <= std::ssize(whole.values));
  Farthest farthest;
  farthest.look(values_of(part).data(), whole.values.data(), begin, part.numel());
  take(subject, {whole.name, whole.shape, whole.largest, subject.row}, farthest);
}

void Findings::take(const Subject& subject, const Whole& whole, const Farthest& element) {
  const double scale = std::max(whole.largest, subject.least_scale);
  take({.step = subject.step,
        .what = word_of_phase(subject.phase),
        .tensor = whole.name,
        .rank = rank_,
        .index = index_of(element.at, whole.shape),
        .found = element.found,
        .expected = element.expected,
        .error = error_of(element.difference, scale),
        .bound = std::max(subject.bound, std::min(subject.least_bound / scale, 0.25))},
       {subject.step, static_cast<std::int64_t>(subject.phase), whole.place, rank_});
}

void Findings::compare(const Subject& subject, double found, double expected) {
  take({.step = subject.step,
        .what = word_of_phase(subject.phase),
        .tensor = {},
        .rank = rank_,
        .index = {},
        .found = found,
        .expected = expected,
        .error = error_of(difference_of(found, expected), std::abs(expected)),
        .bound = subject.bound},
       {subject.step, static_cast<std::int64_t>(subject.phase), 0, rank_});
}

void Findings::take(const Departure& found, const Order& order) {
  keep_larger(found);
  if (found.error <= found.bound || (first_ && first_order_ <= order)) return;
  first_ = found;
  first_order_ = order;
}

/// Errors are compared in units of their bounds.
void Findings::keep_larger(const Departure& found) {
  const bool larger = found.error / found.bound > largest_.error / largest_.bound;
  if (largest_.what.empty() || larger) largest_ = found;
}

void Findings::merge(const Findings& other) {
  if (!other.largest_.what.empty()) keep_larger(other.largest_);
  if (!other.first_ || (first_ && first_order_ <= other.first_order_)) return;
  first_ = other.first_;
  first_order_ = other.first_order_;
}

}  // namespace trainctl
