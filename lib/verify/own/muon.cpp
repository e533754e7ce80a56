#include "verify/own/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trainctl::own {

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

/// a x + b y in x.
void blend(Matrix& x, double a, double b, const Matrix& y) {
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = a * x.values[i] + b * y.values[i];
}

/// X of the direction, times the scale.
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
  if (muon.scale == MuonScale::match_adamw) scale *= 0.2 * std::sqrt(std::max(rows, columns));
  if (muon.scale == MuonScale::spectral) scale *= std::sqrt(std::max(rows, columns));
  if (muon.scale == MuonScale::shape) scale *= std::sqrt(std::max(1.0, rows / columns));
  if (muon.scale == MuonScale::unit_rms) scale *= std::sqrt(rows / columns);
  for (double& value : x.values) value *= scale;
  return x;
}

/// "q" of "layers.0.attention.q.weight".
std::string word_of_name(const std::string& name) {
  const std::size_t end = name.rfind('.');
  const std::size_t begin = name.rfind('.', end - 1) + 1;
  return name.substr(begin, end - begin);
}

/// The parameters that are one matrix with this one, from the top.
std::vector<std::string> stack_of(const std::string& name, const MuonItems& items,
                                  const DirectionOf& direction_of) {
  const std::string word = word_of_name(name);
  std::vector<std::string> words{word};
  if (items.has(MuonItem::gate_up) && (word == "gate" || word == "up")) words = {"gate", "up"};
  if (items.has(MuonItem::qkv) && (word == "q" || word == "k" || word == "v")) {
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

/// The matrix of one expert, or of a parameter without experts.
Matrix slab_of(const Direction& whole, std::int64_t expert) {
  const int dims = whole.shape.rank();
  Matrix slab = zeros(whole.shape[dims - 2], whole.shape[dims - 1]);
  const auto count = static_cast<std::int64_t>(slab.values.size());
  std::copy_n(whole.values.begin() + expert * count, count, slab.values.begin());
  return slab;
}

/// By heads: of q, k and v along rows, of out along columns; else the whole.
Matrix steps_by_heads(const std::string& name, const Matrix& whole, const MuonConfig& muon,
                      std::int64_t head_dim) {
  const std::string word = word_of_name(name);
  const bool by_columns = word == "out";
  const bool cut = by_columns || word == "q" || word == "k" || word == "v";
  if (!muon.items.has(MuonItem::heads) || !cut) return step_of(whole, muon);
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
