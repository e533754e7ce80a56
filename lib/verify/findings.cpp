#include "verify/findings.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "device/host_values.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

const char* word_of_phase(Phase phase) {
  constexpr const char* words[] = {"initial parameter",
                                   "loaded parameter",
                                   "loaded optimizer state 1 of",
                                   "loaded optimizer state 2 of",
                                   "activation",
                                   "router logits",
                                   "loss",
                                   "gradient",
                                   "grad norm",
                                   "loss scale",
                                   "scaler state",
                                   "parameter",
                                   "optimizer state 1 of",
                                   "optimizer state 2 of",
                                   "free loss",
                                   "free gradient",
                                   "free grad norm",
                                   "free loss scale",
                                   "compute copy of",
                                   "calls of",
                                   "bytes of",
                                   "validation loss",
                                   "exported parameter",
                                   "owned parameter",
                                   "resident weight"};
  return words[static_cast<std::size_t>(phase)];
}

/// Not a number is infinitely wrong, whatever the scale.
double error_of(double difference, double scale) {
  if (difference == 0) return 0;
  const double error = difference / scale;
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
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
  const bool backwards = subject.phase == Phase::gradient || subject.phase == Phase::free_gradient;
  return backwards ? -place : place;
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
  double sum = 0;        // of the differences
  std::int64_t count = 0;

  /// Elements [begin, begin + length) of the whole tensor.
  void look(const float* own, const float* whole, std::int64_t begin, std::int64_t length) {
    count += length;
    for (std::int64_t i = 0; i < length; ++i) {
      const double value = double{own[i]};
      const double other = double{whole[begin + i]};
      const double distance = difference_of(value, other);
      sum += distance;
      if (distance <= difference) continue;
      difference = distance;
      found = value;
      expected = other;
      at = begin + i;
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

Findings::Farthest Findings::farthest_of(const ParamSpec& spec, const std::vector<float>& whole,
                                         const HeldPart& held) const {
  Farthest farthest;
  if (held.part.length() == 0) return farthest;
  const std::vector<float> own = values_of(held.values);
  for (const ShardPiece& piece : pieces_in(spec, mesh_, rank_, held.part)) {
    farthest.look(own.data() + piece.local, whole.data(), piece.global, piece.length);
  }
  return farthest;
}

void Findings::compare(const Subject& subject, const ParamSpec& spec,
                       const std::vector<float>& whole, const HeldPart& held) {
  const Farthest farthest = farthest_of(spec, whole, held);
  if (farthest.at < 0) return;
  take(subject, {spec.name, spec.global_shape, largest_of(whole), place_of(subject, spec)},
       farthest);
}

void Findings::compare_mean(const Subject& subject, const ParamSpec& spec,
                            const std::vector<float>& whole, const HeldPart& held, double scale) {
  const Farthest farthest = farthest_of(spec, whole, held);
  if (farthest.at < 0) return;
  Departure where = departure(subject, farthest.found, farthest.expected);
  where.tensor = spec.name;
  where.index = index_of(farthest.at, spec.global_shape);
  where.error = error_of(farthest.sum / static_cast<double>(farthest.count), scale);
  where.bound = std::max(subject.bound, subject.least_bound / scale);
  take(where,
       {subject.step, static_cast<std::int64_t>(subject.phase), place_of(subject, spec), rank_});
}

void Findings::compare(const Subject& subject, const RecordedStream& whole, std::int64_t begin,
                       const Tensor& part) {
  assert(begin + part.numel() <= std::ssize(whole.values));
  Farthest farthest;
  farthest.look(values_of(part).data(), whole.values.data(), begin, part.numel());
  take(subject, {whole.name, whole.shape, whole.largest, subject.row}, farthest);
}

Departure Findings::departure(const Subject& subject, double found, double expected) const {
  Departure where;
  where.step = subject.step;
  where.what = word_of_phase(subject.phase);
  where.rank = rank_;
  where.found = found;
  where.beside = subject.beside;
  where.expected = expected;
  where.bound = subject.bound;
  return where;
}

void Findings::take(const Subject& subject, const Whole& whole, const Farthest& element) {
  const double scale = std::max(whole.largest, subject.least_scale);
  Departure where = departure(subject, element.found, element.expected);
  where.tensor = whole.name;
  where.index = index_of(element.at, whole.shape);
  where.error = error_of(element.difference, scale);
  where.bound = std::max(subject.bound, std::min(subject.least_bound / scale, 0.25));
  take(where, {subject.step, static_cast<std::int64_t>(subject.phase), whole.place, rank_});
}

void Findings::compare(const Subject& subject, double found, double expected,
                       const std::string& tensor) {
  Departure where = departure(subject, found, expected);
  where.tensor = tensor;
  where.error = error_of(difference_of(found, expected), std::abs(expected));
  where.bound = std::max(subject.bound, subject.least_bound / std::abs(expected));
  take(where, {subject.step, static_cast<std::int64_t>(subject.phase), subject.row, rank_});
}

void Findings::take(const Departure& found, const Order& order) {
  if (found.error == 0 && found.bound == 0) return;
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
