#include "verify/findings.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>

#include "base/at.h"
#include "base/text.h"
#include "base/units.h"
#include "comm/values.h"
#include "device/slab.h"
#include "plan/tables/shard.h"
#include "verify/verify.h"

namespace trainctl {

namespace {

const char* word_of_phase(Phase phase) {
  constexpr const char* words[] = {"initial parameter",
                                   "loaded parameter",
                                   "loaded optimizer state 1 of",
                                   "loaded optimizer state 2 of",
                                   "loaded average of",
                                   "activation",
                                   "router logits",
                                   "router",
                                   "scalar",
                                   "loss",
                                   "gradient",
                                   "sum of",
                                   "grad norm",
                                   "scalar",
                                   "scalar",
                                   "parameter",
                                   "optimizer state 1 of",
                                   "optimizer state 2 of",
                                   "average of",
                                   "update of",
                                   "dropout",
                                   "gradient",
                                   "batch",
                                   "scalar",
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
                                   "resident weight",
                                   "bits of",
                                   "bits of parameter",
                                   "bits of optimizer state 1 of",
                                   "bits of optimizer state 2 of",
                                   "bits of average of"};
  return words[static_cast<std::size_t>(phase)];
}

/// Relative error. It is infinite if not a number.
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

/// A tensor's order within its phase. Gradients are computed from the last unit to the first and,
/// within a unit, from the table's last row to the first; a tied embedding's is complete last.
std::int64_t place_of(const Findings::Subject& subject, const ParamSpec& spec) {
  constexpr std::int64_t max_rows = 1 << 20;
  const std::int64_t unit = spec.two_homes ? 0 : spec.unit;
  const std::int64_t place = unit * max_rows + subject.row;
  const bool backwards = subject.phase == Phase::gradient || subject.phase == Phase::sum ||
                         subject.phase == Phase::free_gradient;
  return backwards ? -place : place;
}

}  // namespace

struct Findings::Whole {
  const std::string& name;
  const Shape& shape;
  double largest;  // largest absolute value
  std::int64_t place;
};

struct Findings::Farthest {
  double difference = -1;
  double found = 0;
  double expected = 0;
  std::int64_t at = -1;  // index in the whole tensor
  double sum = 0;        // sum of the differences
  std::int64_t count = 0;

  /// Compares `own` with elements [begin, begin + length) of the whole tensor.
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

std::string Departure::text() const {
  const auto value = [](double number) {
    return std::isfinite(number) ? printed("%.6g", number) : std::string("nan");
  };
  return formatted("{}, rank {}: {}, {} {} (error {:.1e}, bound {:.0e})", place(), rank,
                   value(found), beside, value(expected), error, bound);
}

Findings::Farthest Findings::farthest_of(const ParamSpec& spec, const std::vector<float>& whole,
                                         const HeldPart& held) const {
  Farthest farthest;
  if (held.part.length() == 0) return farthest;
  const std::vector<float> own = values_of(held.values);
  for (const BoxRun& piece : pieces_in(spec, mesh_, rank_, held.part)) {
    farthest.look(own.data() + piece.to, whole.data(), piece.from, piece.length);
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
  where.bound = std::max(subject.bound, subject.min_bound / scale);
  take(where,
       {subject.step, static_cast<std::int64_t>(subject.phase), place_of(subject, spec), rank_});
}

void Findings::compare_part(const Subject& subject, const ParamSpec& spec, const std::string& name,
                            const HeldPart& held, const std::vector<double>& expected,
                            double scale) {
  if (held.part.length() == 0) return;
  const std::vector<float> own = values_of(held.values);
  Farthest farthest;
  for (const BoxRun& piece : pieces_in(spec, mesh_, rank_, held.part)) {
    for (std::int64_t i = 0; i < piece.length; ++i) {
      const auto here = static_cast<std::size_t>(piece.to + i);
      const double distance = difference_of(double{own[here]}, expected[here]);
      if (distance <= farthest.difference) continue;
      farthest = {distance, double{own[here]}, expected[here], piece.from + i};
    }
  }
  Departure where = departure(subject, farthest.found, farthest.expected);
  where.tensor = name;
  where.index = index_of(farthest.at, spec.global_shape);
  where.error = error_of(farthest.difference, scale);
  take(where,
       {subject.step, static_cast<std::int64_t>(subject.phase), place_of(subject, spec), rank_});
}

void Findings::compare_error(const Subject& subject, const std::string& name, double found,
                             double expected, double error) {
  Departure where = departure(subject, found, expected);
  where.tensor = name;
  where.error = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  take(where, {subject.step, static_cast<std::int64_t>(subject.phase), subject.row, rank_});
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
  const double scale = std::max(whole.largest, subject.min_scale);
  Departure where = departure(subject, element.found, element.expected);
  where.tensor = whole.name;
  where.index = index_of(element.at, whole.shape);
  where.error = error_of(element.difference, scale);
  where.bound = std::max(subject.bound, std::min(subject.min_bound / scale, 0.5));
  take(where, {subject.step, static_cast<std::int64_t>(subject.phase), whole.place, rank_});
}

void Findings::compare(const Subject& subject, double found, double expected,
                       const std::string& tensor) {
  Departure where = departure(subject, found, expected);
  where.tensor = tensor;
  const double scale = std::max(std::abs(expected), subject.min_scale);
  where.error = error_of(difference_of(found, expected), scale);
  where.bound = std::max(subject.bound, subject.min_bound / scale);
  take(where, {subject.step, static_cast<std::int64_t>(subject.phase), subject.row, rank_});
}

void Findings::take(const Departure& found, const Order& order) {
  if (found.error == 0 && found.bound == 0) return;
  keep_larger(found);
  if (found.error <= found.bound || (first_ && first_order_ <= order)) return;
  first_ = found;
  first_order_ = order;
}

/// Keeps the departure with the largest error relative to its bound.
void Findings::keep_larger(const Departure& found) {
  const bool larger = found.error / found.bound > largest_.error / largest_.bound;
  if (largest_.what.empty() || larger) largest_ = found;
}

// The members of a departure that a process sends to the others.
constexpr auto members_of(const Departure*) {
  using One = Departure;
  return std::tuple(&One::step, &One::what, &One::tensor, &One::rank, &One::index, &One::found,
                    &One::beside, &One::expected, &One::error, &One::bound);
}

std::string Findings::bytes() const {
  std::string bytes;
  pack(largest_, bytes);
  pack(first_order_, bytes);
  pack(first_.has_value(), bytes);
  if (first_) pack(*first_, bytes);
  return bytes;
}

void Findings::take_bytes(const std::string& bytes) {
  Findings other(mesh_, rank_);
  std::string_view rest = bytes;
  unpack(rest, other.largest_);
  unpack(rest, other.first_order_);
  bool departs = false;
  unpack(rest, departs);
  if (departs) unpack(rest, other.first_.emplace());
  merge(other);
}

void Findings::merge(const Findings& other) {
  if (!other.largest_.what.empty()) keep_larger(other.largest_);
  if (!other.first_ || (first_ && first_order_ <= other.first_order_)) return;
  first_ = other.first_;
  first_order_ = other.first_order_;
}

void add_labels(const std::vector<Batch>& batches, own::StepNumbers& numbers) {
  double weights = 0;
  double positions = 0;
  for (const Batch& batch : batches) {
    for (const float weight : batch.loss_weight) weights += double{weight};
    for (const std::int64_t real : batch.real) positions += static_cast<double>(real);
  }
  numbers.loss_factor = weights > 0 ? 1 / weights : 0;
  numbers.token_factor = positions > 0 ? 1 / positions : 0;
}

void add_gradients(const Config& config, const WholeTensors& gradients, own::StepNumbers& numbers) {
  double squares = 0;
  for (const auto& [name, values] : gradients) {
    for (const float value : values) squares += double{value} * double{value};
  }
  add_norm(config, std::sqrt(squares) / numbers.before.loss_scale, std::isfinite(squares), numbers);
}

void add_norm(const Config& config, double norm, bool finite, own::StepNumbers& numbers) {
  numbers.norm = norm;
  numbers.finite = finite;
  numbers.after = own::after_step(config, numbers.before, finite);
}

namespace {

class Scalars {
 public:
  Scalars(Findings& findings, Phase phase, std::int64_t step, double bound = scalar_bound)
      : findings_(findings), subject_{.phase = phase, .step = step, .bound = bound} {
    subject_.beside = "by verify's own arithmetic it is";
  }

  void compare(const std::string& name, double found, double expected) {
    findings_.compare(subject_, found, expected, name);
    ++subject_.row;
  }
  void compare(const std::string& name, std::int64_t found, std::int64_t expected) {
    compare(name, static_cast<double>(found), static_cast<double>(expected));
  }

 private:
  Findings& findings_;
  Findings::Subject subject_;
};

/// Uses the layout's own norm, so that an error in the norm is not reported twice.
void compare_clip(Findings& findings, Phase phase, const OptimizerConfig& optimizer,
                  const FoundScalars& found, const own::StepNumbers& expected) {
  Scalars(findings, phase, found.step)
      .compare("clip_coefficient", double{found.state.clip_coefficient},
               own::clip_coefficient(found.state.grad_norm, optimizer.clip_grad_norm,
                                     expected.before.loss_scale));
}

}  // namespace

void compare_scalars(Findings& findings, Phase phase, const FoundScalars& found,
                     const own::StepNumbers& expected) {
  Scalars scalars(findings, phase, found.step);
  const StepState& state = found.state;
  scalars.compare("step", state.step, expected.step);
  scalars.compare("learning_rate", double{state.learning_rate}, expected.learning_rate);
  scalars.compare("weight_decay", double{state.weight_decay}, expected.weight_decay);
  scalars.compare("bias_correction1", double{state.bias_correction1}, expected.bias_correction1);
  scalars.compare("bias_correction2", double{state.bias_correction2}, expected.bias_correction2);
  scalars.compare("loss_factor", double{state.loss_factor}, found.factor * expected.loss_factor);
  scalars.compare("token_factor", double{state.token_factor}, found.factor * expected.token_factor);
}

void compare_verdict(Findings& findings, const OptimizerConfig& optimizer,
                     const FoundScalars& found, const own::StepNumbers& expected) {
  if (expected.finite) {
    findings.compare({.phase = Phase::grad_norm,
                      .step = found.step,
                      .bound = fp32_bound,
                      .beside = "the gradients have"},
                     found.state.grad_norm, expected.norm);
    compare_clip(findings, Phase::clip, optimizer, found, expected);
  }
  compare_counters(findings, Phase::scaler, found, expected.after);
}

void compare_free_scalars(Findings& findings, const OptimizerConfig& optimizer,
                          const FoundScalars& found, const own::StepNumbers& expected) {
  compare_scalars(findings, Phase::free_scalar, found, expected);
  // The clip follows from the scale, so the scale's counters come first.
  compare_counters(findings, Phase::free_scalar, found, expected.after);
  if (expected.finite) compare_clip(findings, Phase::free_scalar, optimizer, found, expected);
}

void compare_router(Findings& findings, const RouterReport& found, std::int64_t step,
                    const RecordedStep& expected) {
  own::RouterSums sums;
  std::vector<double> loads;  // relative to the mean load of the layer
  for (const own::RouterSums& layer : expected.router_sums) {
    sums.balance += layer.balance;
    sums.z_loss += layer.z_loss;
    sums.entropy += layer.entropy;
    sums.dropped += layer.dropped;
    const double all = std::accumulate(layer.loads.begin(), layer.loads.end(), 0.0);
    for (const double load : layer.loads) {
      loads.push_back(load * static_cast<double>(found.experts) / all);
    }
  }
  const double tokens = expected.real_tokens * static_cast<double>(expected.router_sums.size());
  Scalars scalars(findings, Phase::router_report, step, fp32_bound);
  scalars.compare("balance loss", found.balance_loss, sums.balance / tokens);
  scalars.compare("z loss", found.z_loss, sums.z_loss / tokens);
  scalars.compare("entropy", found.entropy, sums.entropy / tokens);
  scalars.compare("dropped choices", found.dropped, sums.dropped);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    scalars.compare("load of expert " + std::to_string(i % static_cast<std::size_t>(found.experts)),
                    double{found.loads[i]}, loads[i]);
  }
}

void compare_scores(Findings& findings, std::int64_t step, double bound,
                    std::span<const float> found, std::span<const float> expected,
                    std::int64_t heads) {
  Findings::Subject subject{.phase = Phase::clip, .step = step, .bound = bound};
  for (; subject.row < std::ssize(expected); ++subject.row) {
    if (subject.row % heads == 0) {
      const auto layer = expected.begin() + subject.row;
      subject.min_scale = largest_of(std::vector<float>(layer, layer + heads));
    }
    findings.compare(subject, double{at(found, subject.row)}, double{at(expected, subject.row)},
                     "largest attention score " + std::to_string(subject.row));
  }
}

void compare_counters(Findings& findings, Phase phase, const FoundScalars& found,
                      const own::Counters& expected) {
  Scalars scalars(findings, phase, found.step);
  scalars.compare("loss scale", found.state.loss_scale, expected.loss_scale);
  scalars.compare("updates", found.state.updates, expected.updates);
  scalars.compare("good_steps", found.state.good_steps, expected.good_steps);
  scalars.compare("hysteresis", found.state.hysteresis, expected.hysteresis);
}

}  // namespace trainctl
