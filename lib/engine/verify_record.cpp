#include "engine/verify_record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "plan/shard.h"

namespace trainctl {

namespace {

std::vector<float> values_of(const Tensor& tensor) {
  const float* values = tensor.as<float>();
  return {values, values + tensor.numel()};
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
  constexpr const char* words[] = {"initial parameter",   "loss",      "gradient",
                                   "grad norm",           "loss scale", "scaler state",
                                   "parameter",           "optimizer state 1 of",
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

/// The pieces of `rank`'s shard inside `part`; local places count from its begin.
std::vector<ShardPiece> pieces_in(const ParamSpec& spec, const Mesh& mesh, std::int64_t rank,
                                  const Slice& part) {
  std::vector<ShardPiece> pieces;
  if (part.begin == part.end) return pieces;
  for (const ShardPiece& piece : shard_pieces(spec, mesh, rank)) {
    const std::int64_t begin = std::max(piece.local, part.begin);
    const std::int64_t end = std::min(piece.local + piece.length, part.end);
    if (begin >= end) continue;
    pieces.push_back({piece.global + begin - piece.local, begin - part.begin, end - begin});
  }
  return pieces;
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

std::string Departure::place() const {
  std::string text = what + (tensor.empty() ? "" : " " + tensor);
  for (std::size_t i = 0; i < index.size(); ++i) {
    text += (i == 0 ? "[" : ", ") + std::to_string(index[i]);
  }
  return text + (index.empty() ? "" : "]") + ", step " + std::to_string(step);
}

HeldPart whole_part(const Tensor& shard) { return {shard, {0, shard.numel()}}; }

HeldPart held_part(const ParamStore& store, int parameter, int kind) {
  if (kind == 0) return whole_part(store.master(parameter));
  return {store.state(parameter, kind - 1), store.owned(parameter)};
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
               const std::vector<float>& whole, const HeldPart& held) {
  for (const ShardPiece& piece : pieces_in(spec, mesh, rank, held.part)) {
    std::memcpy(held.values.as<float>() + piece.local, whole.data() + piece.global,
                static_cast<std::size_t>(piece.length) * sizeof(float));
  }
}

void Findings::compare(const Subject& subject, const ParamSpec& spec,
                       const std::vector<float>& whole, const HeldPart& held) {
  std::int64_t at = -1;
  std::int64_t local = 0;
  double largest = -1;
  for (const ShardPiece& piece : pieces_in(spec, mesh_, rank_, held.part)) {
    const float* expected = whole.data() + piece.global;
    const float* own = held.values.as<float>() + piece.local;
    for (std::int64_t i = 0; i < piece.length; ++i) {
      const double difference = difference_of(double{own[i]}, double{expected[i]});
      if (difference <= largest) continue;
      largest = difference;
      at = piece.global + i;
      local = piece.local + i;
    }
  }
  if (at < 0) return;
  const double scale = std::max(largest_of(whole), subject.least_scale);
  take({.step = subject.step,
        .what = word_of_phase(subject.phase),
        .tensor = spec.name,
        .rank = rank_,
        .index = index_of(at, spec.global_shape),
        .found = double{held.values.as<float>()[local]},
        .expected = double{whole[static_cast<std::size_t>(at)]},
        .error = error_of(largest, scale),
        .bound = std::max(subject.bound, std::min(subject.least_bound / scale, 0.25))},
       {subject.step, static_cast<std::int64_t>(subject.phase), place_of(subject, spec), rank_});
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
