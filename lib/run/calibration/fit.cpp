#include "run/calibration/fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/at.h"
#include "base/parallel_for.h"

namespace trainctl {

namespace {

using Numbers = std::vector<double>;

constexpr double least_error = 0.01;  // below which an error counts as its square
constexpr double most_step = 0.4;     // of a logarithm in a round
constexpr double difference = 0.05;   // of a logarithm, for slopes

/// Solves a x = b for a symmetric positive a, by elimination with pivots.
Numbers solve(std::vector<Numbers> a, Numbers b) {
  const std::size_t n = b.size();
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column; row < n; ++row) {
      if (std::abs(a[row][column]) > std::abs(a[pivot][column])) pivot = row;
    }
    std::swap(a[column], a[pivot]);
    std::swap(b[column], b[pivot]);
    for (std::size_t row = column + 1; row < n; ++row) {
      const double factor = a[row][column] / a[column][column];
      for (std::size_t at = column; at < n; ++at) a[row][at] -= factor * a[column][at];
      b[row] -= factor * b[column];
    }
  }
  for (std::size_t row = n; row-- > 0;) {
    for (std::size_t at = row + 1; at < n; ++at) b[row] -= a[row][at] * b[at];
    b[row] /= a[row][row];
  }
  return b;
}

/// One step of reweighted least squares for errors e + slopes * step; `moved` is how far the
/// constants are from where they began.
Numbers step_of(const std::vector<FitCase>& cases, const FitStart& start, const Numbers& errors,
                const std::vector<Numbers>& slopes, const Numbers& moved) {
  const std::size_t n = moved.size();
  std::vector<Numbers> a(n, Numbers(n, 0));
  Numbers b(n, 0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].used) continue;
    const double weight = cases[i].weight / std::max(std::abs(errors[i]), least_error);
    for (std::size_t row = 0; row < n; ++row) {
      if (slopes[i][row] == 0) continue;
      b[row] -= weight * slopes[i][row] * errors[i];
      for (std::size_t at = 0; at < n; ++at) a[row][at] += weight * slopes[i][row] * slopes[i][at];
    }
  }
  for (std::size_t row = 0; row < n; ++row) {
    const double pull = 2 * usual_error / (start.spread[row] * start.spread[row]);
    a[row][row] += pull;
    b[row] -= pull * moved[row];
  }
  Numbers step = solve(std::move(a), std::move(b));
  for (double& one : step) one = std::clamp(one, -most_step, most_step);
  return step;
}

Numbers moved_from(const FitStart& start, const Numbers& values) {
  Numbers moved;
  for (std::size_t i = 0; i < values.size(); ++i) {
    moved.push_back(std::log(values[i] / start.values[i]));
  }
  return moved;
}

double cost_of(const std::vector<FitCase>& cases, const FitStart& start, const Numbers& errors,
               const Numbers& values) {
  double cost = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) cost += cases[i].weight * std::abs(errors[i]);
  const Numbers moved = moved_from(start, values);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    cost += usual_error * moved[i] * moved[i] / (start.spread[i] * start.spread[i]);
  }
  return cost;
}

Numbers times_exp(const Numbers& values, const Numbers& step, double part) {
  Numbers moved;
  for (std::size_t i = 0; i < values.size(); ++i) {
    moved.push_back(values[i] * std::exp(part * step[i]));
  }
  return moved;
}

Numbers errors_of(const std::vector<FitCase>& cases, const FitError& error, const Numbers& values) {
  Numbers errors(cases.size(), 0);
  parallel_for(std::ssize(cases), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (at(cases, i).used) at(errors, i) = error(static_cast<std::size_t>(i), values);
    }
  });
  return errors;
}

/// [case][constant], by the constant's logarithm.
std::vector<Numbers> slopes_of(const std::vector<FitCase>& cases, const FitError& error,
                               const Fitted& fitted) {
  std::vector<Numbers> slopes(cases.size(), Numbers(fitted.values.size(), 0));
  parallel_for(std::ssize(cases), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::size_t constant = 0; constant < fitted.values.size(); ++constant) {
        if (!at(cases, i).used || !at(cases, i).concerned[constant]) continue;
        Numbers values = fitted.values;
        values[constant] *= std::exp(difference);
        const double moved = error(static_cast<std::size_t>(i), values);
        at(slopes, i)[constant] = (moved - at(fitted.errors, i)) / difference;
      }
    }
  });
  return slopes;
}

}  // namespace

Fitted fit(const std::vector<FitCase>& cases, const FitStart& start, const FitError& error,
           int rounds, const std::function<void(int round, double mean)>& tell) {
  Fitted fitted{.values = start.values, .errors = errors_of(cases, error, start.values)};
  const auto count = static_cast<double>(std::ranges::count(cases, true, &FitCase::used));
  bool better = true;
  for (int round = 0; better; ++round) {
    double mean = 0;
    for (const double one : fitted.errors) mean += std::abs(one) / count;
    tell(round, mean);
    if (round == rounds) break;
    const std::vector<Numbers> slopes = slopes_of(cases, error, fitted);
    const double before = cost_of(cases, start, fitted.errors, fitted.values);
    const Numbers step =
        step_of(cases, start, fitted.errors, slopes, moved_from(start, fitted.values));
    better = false;
    for (double part = 1; part > 0.2 && !better; part /= 2) {
      const Numbers values = times_exp(fitted.values, step, part);
      const Numbers errors = errors_of(cases, error, values);
      better = cost_of(cases, start, errors, values) < before;
      if (better) fitted = {.values = values, .errors = errors};
    }
  }
  return fitted;
}

}  // namespace trainctl
