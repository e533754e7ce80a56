#include "verify/own/update.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainctl::own {

namespace {

/// Rounds a coefficient to fp32, as the engine does: 1 - beta is small, so rounding matters.
double narrow(double coefficient) { return double{static_cast<float>(coefficient)}; }

/// Whether a group's pattern matches the whole name.
bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*' && fits(pattern.substr(1), name)) return true;
  if (pattern.front() == '*') return !name.empty() && fits(pattern, name.substr(1));
  if (name.empty() || (pattern.front() != '?' && pattern.front() != name.front())) return false;
  return fits(pattern.substr(1), name.substr(1));
}

/// Whether a name is that of a matrix in attention or feed-forward layers, including experts, but
/// not routers or the gate of shared experts.
bool is_matrix_of_layer(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  const bool inside = has(".attention.") || has(".mlp.") || has(".experts.") || has(".shared.");
  return inside && decays(name);
}

/// The inputs of an update that do not depend on the element, and the clipped gradient.
struct Terms {
  const OptimizerConfig& optimizer;
  const StepNumbers& numbers;
  double gradient, rate, decay, beta1, beta2;
};

/// Loshchilov and Hutter 2019, algorithm 2, with decay multiplied by the learning rate.
Element adamw(const Element& before, const Terms& terms) {
  Element after;
  after.first = terms.beta1 * before.first + (1 - terms.beta1) * terms.gradient;
  after.second = terms.beta2 * before.second + (1 - terms.beta2) * terms.gradient * terms.gradient;
  const double mean = after.first / terms.numbers.bias_correction1;
  const double deviation = std::sqrt(after.second / terms.numbers.bias_correction2);
  const double epsilon = narrow(terms.optimizer.eps);
  const double direction = mean / (deviation + epsilon) + terms.decay * before.value;
  after.value = before.value - terms.rate * direction;
  return after;
}

Element sgd(const Element& before, const Terms& terms) {
  const bool coupled = terms.optimizer.weight_decay_form == "coupled";
  const double decay = terms.decay * before.value;
  Element after;
  after.first = terms.optimizer.momentum * before.first + terms.gradient + (coupled ? decay : 0);
  const double direction = after.first + (coupled ? 0 : decay);
  after.value = before.value - terms.rate * direction;
  return after;
}

/// Chen et al. 2023, algorithm 2. If the two terms of the direction cancel within fp32 accuracy,
/// its sign is unknown.
Element lion(const Element& before, const Terms& terms) {
  const double kept = terms.beta1 * before.first;
  const double added = (1 - terms.beta1) * terms.gradient;
  const double sign = kept + added > 0 ? 1 : kept + added < 0 ? -1 : 0;
  const double rate = terms.rate;
  Element after;
  after.first = terms.beta2 * before.first + (1 - terms.beta2) * terms.gradient;
  after.value = before.value - rate * (sign + terms.decay * before.value);
  const bool known = std::abs(kept + added) >= 0x1p-21 * (std::abs(kept) + std::abs(added));
  if (!known) after.loose = 2 * rate;
  return after;
}

/// Updates momentum and applies weight decay; leaves the direction in `second`.
Element muon(const Element& before, const Terms& terms) {
  const double kept = narrow(terms.optimizer.muon.momentum);
  Element after;
  after.first = kept * before.first + (1 - kept) * terms.gradient;
  after.second = terms.optimizer.muon.nesterov ? kept * after.first + (1 - kept) * terms.gradient
                                               : after.first;
  after.value = before.value * (1 - terms.rate * terms.decay);
  return after;
}

}  // namespace

Choice choice_of(std::string_view name, const OptimizerConfig& optimizer) {
  const bool is_rest = optimizer.type == OptimizerType::muon && !is_matrix_of_layer(name);
  Choice choice{.type = is_rest ? OptimizerType::adamw : optimizer.type,
                .rate = 1,
                .decay = decays(name) ? 1.0 : 0.0};
  if (name.ends_with(".expert_bias")) return choice;
  for (const OptimizerGroup& group : optimizer.groups) {
    for (const std::string& pattern : group.match) {
      if (!fits(pattern, name)) continue;
      if (group.type) choice.type = *group.type;
      choice.rate = group.lr_mult;
      if (group.wd_mult) choice.decay = *group.wd_mult;
      return choice;
    }
  }
  return choice;
}

double clip_factor(const std::string& name, double place, const OptimizerConfig& optimizer,
                   const ModelShape& model, std::span<const float> largest) {
  const bool is_query = name.find(".attention.q.") != std::string::npos;
  const bool is_key = name.find(".attention.k.") != std::string::npos;
  if (largest.empty() || !(is_query || is_key) || choice_of(name, optimizer).rate == 0) return 1;
  const int layer = std::stoi(name.substr(name.find('.') + 1));
  const std::int64_t kv_heads = model.kind(layer).kv_heads;
  const auto head = static_cast<std::int64_t>(place * static_cast<double>(kv_heads));
  const std::int64_t sharing = model.heads / kv_heads;
  const auto first = largest.begin() + layer * model.heads + head * sharing;
  const double threshold = optimizer.qk_clip_threshold.value_or(0);
  const double most = std::max(threshold, double{*std::max_element(first, first + sharing)});
  const double alpha = optimizer.qk_clip_alpha;
  return std::pow(threshold / most, is_query ? alpha : 1 - alpha);
}

Update::Update(const OptimizerConfig& optimizer, const StepNumbers& numbers)
    : optimizer_(optimizer),
      numbers_(numbers),
      clip_(clip_coefficient(numbers.norm, optimizer.clip_grad_norm, numbers.before.loss_scale)) {}

Element Update::of(const Element& before, double gradient, const Choice& choice) const {
  if (!numbers_.finite) return before;
  const Terms terms{.optimizer = optimizer_,
                    .numbers = numbers_,
                    .gradient = clip_ * gradient,
                    .rate = choice.rate * numbers_.learning_rate,
                    .decay = choice.decay * numbers_.weight_decay,
                    .beta1 = narrow(optimizer_.beta1),
                    .beta2 = narrow(optimizer_.beta2)};
  switch (choice.type) {
    case OptimizerType::adamw: return adamw(before, terms);
    case OptimizerType::lion: return lion(before, terms);
    case OptimizerType::muon: return muon(before, terms);
    case OptimizerType::sgd: break;
  }
  return sgd(before, terms);
}

double Update::average(double before, double value) const {
  if (!numbers_.finite) return before;
  const double kept = narrow(optimizer_.ema_decay);
  return kept * before + (1 - kept) * value;
}

namespace {

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> values;
};

auto& cell(auto& matrix, std::int64_t row, std::int64_t column) {
  return matrix.values[static_cast<std::size_t>(row * matrix.columns + column)];
}

Matrix zeros(std::int64_t rows, std::int64_t columns) {
  return {rows, columns, std::vector<double>(static_cast<std::size_t>(rows * columns))};
}

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c = zeros(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t j = 0; j < b.columns; ++j) cell(c, i, j) += cell(a, i, k) * cell(b, k, j);
    }
  }
  return c;
}

Matrix turned(const Matrix& a) {
  Matrix b = zeros(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < a.columns; ++j) cell(b, j, i) = cell(a, i, j);
  }
  return b;
}

/// x = a x + b y.
void blend(Matrix& x, double a, double b, const Matrix& y) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = a * x.values[i] + b * y.values[i];
}

/// The orthogonalized direction x, times Muon's scale for its shape.
Matrix step_of(Matrix x, const MuonConfig& muon) {
  const auto rows = static_cast<double>(x.rows);
  const auto columns = static_cast<double>(x.columns);
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  const double norm = std::max(std::sqrt(squares), muon.eps);
  for (double& value : x.values) value = norm > 0 ? value / norm : 0;
  const bool high = x.rows > x.columns;
  if (high) x = turned(x);
  for (const auto& [a, b, c] : muon_steps(muon)) {
    Matrix gram = product(x, turned(x));
    blend(gram, b, c, product(gram, gram));
    blend(x, a, 1, product(gram, x));
  }
  if (high) x = turned(x);
  double scale = muon.scale_factor;
  if (muon.scale == "match_adamw") scale *= 0.2 * std::sqrt(std::max(rows, columns));
  if (muon.scale == "spectral") scale *= std::sqrt(std::max(rows, columns));
  if (muon.scale == "shape") scale *= std::sqrt(std::max(1.0, rows / columns));
  if (muon.scale == "unit_rms") scale *= std::sqrt(rows / columns);
  for (double& value : x.values) value *= scale;
  return x;
}

/// The word before the last dot, such as "q" in "layers.0.attention.q.weight".
std::string word_of_name(const std::string& name) {
  const std::size_t end = name.rfind('.');
  const std::size_t begin = name.rfind('.', end - 1) + 1;
  return name.substr(begin, end - begin);
}

/// The parameters stacked into one matrix with this parameter, from the top.
std::vector<std::string> stack_of(const std::string& name, const MuonItems& items,
                                  const DirectionOf& direction_of) {
  const std::string word = word_of_name(name);
  std::vector<std::string> words{word};
  if (has(items, "gate_up") && (word == "gate" || word == "up")) words = {"gate", "up"};
  if (has(items, "qkv") && (word == "q" || word == "k" || word == "v")) {
    words = {"q", "k", "v"};
  }
  std::vector<std::string> names;
  const std::size_t end = name.rfind('.');
  for (const std::string& one : words) {
    const std::string other = name.substr(0, end - word.size()) + one + name.substr(end);
    if (!direction_of(other).values.empty()) names.push_back(other);
  }
  return names;
}

/// The matrix of one expert; the whole parameter if it has no experts.
Matrix slab_of(const Direction& whole, std::int64_t expert) {
  const int dims = whole.shape.rank();
  Matrix slab = zeros(whole.shape[dims - 2], whole.shape[dims - 1]);
  const auto count = static_cast<std::int64_t>(slab.values.size());
  std::copy_n(whole.values.begin() + expert * count, count, slab.values.begin());
  return slab;
}

/// The steps of a matrix; with the item heads q, k, v are cut by rows, out by columns into heads.
Matrix steps_by_heads(const std::string& name, const Matrix& whole, const MuonConfig& muon,
                      std::int64_t head_dim) {
  const std::string word = word_of_name(name);
  const bool by_columns = word == "out";
  const bool cut = by_columns || word == "q" || word == "k" || word == "v";
  if (!has(muon.items, "heads") || !cut) return step_of(whole, muon);
  Matrix steps = by_columns ? turned(whole) : whole;
  const std::int64_t size = head_dim * steps.columns;
  for (auto head = steps.values.begin(); head != steps.values.end(); head += size) {
    Matrix one{head_dim, steps.columns, {head, head + size}};
    one = by_columns ? turned(step_of(turned(one), muon)) : step_of(one, muon);
    std::ranges::copy(one.values, head);
  }
  return by_columns ? turned(steps) : steps;
}

}  // namespace

std::vector<double> muon_steps_of(const std::string& name, const MuonConfig& muon,
                                  std::int64_t head_dim, const DirectionOf& direction_of) {
  const Direction own = direction_of(name);
  const std::int64_t experts = own.shape.rank() == 3 ? own.shape[0] : 1;
  const std::vector<std::string> stack = stack_of(name, muon.items, direction_of);
  std::vector<double> steps;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    Matrix whole;
    std::int64_t top = 0;
    for (const std::string& one : stack) {
      const Matrix slab = slab_of(direction_of(one), expert);
      if (one == name) top = whole.rows;
      whole.rows += slab.rows;
      whole.columns = slab.columns;
      whole.values.insert(whole.values.end(), slab.values.begin(), slab.values.end());
    }
    const Matrix made = steps_by_heads(name, whole, muon, head_dim);
    const auto first = made.values.begin() + top * whole.columns;
    steps.insert(steps.end(), first, first + own.shape.numel() / experts);
  }
  return steps;
}

double muon_bound(const MuonConfig& muon) {
  double growth = 1;
  for (const MuonTriple& triple : muon_steps(muon)) growth *= std::abs(triple[0]);
  return std::max(1e-4, 8 * 0x1p-24 * growth);
}

}  // namespace trainctl::own
