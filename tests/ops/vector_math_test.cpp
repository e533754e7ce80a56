#include "ops/cpu/vector/vector_math.h"

#include <cmath>
#include <limits>

#include "catch.h"
#include "thorough.h"

namespace vector_math_test {

using namespace trainctl;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// |got - expected| in units of the last place of the expected float.
double units(float got, double expected) {
  const float rounded = std::fabs(static_cast<float>(expected));
  return std::fabs(got - expected) / (std::nextafterf(rounded, infinity) - rounded);
}

/// The largest error over many floats of [from, to], both signs of exponents included.
template <class Function, class Exact>
double worst(Function function, Exact exact, float from, float to) {
  double most = 0;
  const int points = tries(40000, 200000);
  for (int i = 0; i <= points; ++i) {
    const float x = from + (to - from) * (static_cast<float>(i) / static_cast<float>(points));
    most = std::fmax(most, units(function(x), exact(static_cast<double>(x))));
  }
  return most;
}

const auto exact_exp = [](double x) { return std::exp(x); };
const auto exact_expm1 = [](double x) { return std::expm1(x); };
const auto exact_tanh = [](double x) { return std::tanh(x); };
const auto exact_sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };

}  // namespace

TEST_CASE("fast_exp is within two units in the last place") {
  CHECK(worst(fast_exp, exact_exp, -87.32F, 88.36F) < 2);
  CHECK(worst(fast_exp, exact_exp, -1, 1) < 2);
  CHECK(fast_exp(0) == 1);
  CHECK(fast_exp(-infinity) == 0);
  CHECK(fast_exp(-100) == 0);
  CHECK(fast_exp(infinity) == infinity);
  CHECK(fast_exp(89) == infinity);
  CHECK(std::isnan(fast_exp(NAN)));
}

TEST_CASE("fast_exp_of_term is within 2^-22 of the terms of a sum") {
  const int points = tries(40000, 200000);
  double most = 0;
  for (int i = 0; i <= points; ++i) {
    const float x = -88 + 89 * (static_cast<float>(i) / static_cast<float>(points));
    const double exact = std::exp(static_cast<double>(x));
    most = std::fmax(most, std::fabs(fast_exp_of_term(x) - exact) / std::fmax(1, exact));
  }
  CHECK(most < 0x1p-22);
  CHECK(fast_exp_of_term(0) == 1);
  CHECK(fast_exp_of_term(-87.5F) == 0);
  CHECK(fast_exp_of_term(-infinity) == 0);
  CHECK(std::isnan(fast_exp_of_term(NAN)));
}

TEST_CASE("fast_expm1 keeps its precision near zero") {
  CHECK(worst(fast_expm1, exact_expm1, -19, 80) < 4);
  CHECK(worst(fast_expm1, exact_expm1, -1, 1) < 4);
  CHECK(worst(fast_expm1, exact_expm1, 1e-12F, 1e-3F) < 4);
  CHECK(fast_expm1(0) == 0);
  CHECK(fast_expm1(-infinity) == -1);
  CHECK(std::isnan(fast_expm1(NAN)));
}

TEST_CASE("fast_tanh is odd and bounded") {
  CHECK(worst(fast_tanh, exact_tanh, -12, 12) < 6);
  CHECK(worst(fast_tanh, exact_tanh, 1e-12F, 1e-2F) < 6);
  for (const float x : {0.001F, 0.3F, 1.0F, 5.0F, 20.0F}) CHECK(fast_tanh(-x) == -fast_tanh(x));
  CHECK(fast_tanh(infinity) == 1);
  CHECK(fast_tanh(-infinity) == -1);
  CHECK(std::isnan(fast_tanh(NAN)));
}

TEST_CASE("fast_sigmoid follows the logistic function") {
  CHECK(worst(fast_sigmoid, exact_sigmoid, -87, 87) < 4);
  CHECK(fast_sigmoid(0) == 0.5F);
  CHECK(fast_sigmoid(-infinity) == 0);
  CHECK(fast_sigmoid(infinity) == 1);
  CHECK(std::isnan(fast_sigmoid(NAN)));
}

}  // namespace vector_math_test
