#include <algorithm>
#include <array>
#include <cstdint>

#include "base/parallel_for.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/vector/philox_lanes.h"
#include "ops/elements.h"
#include "ops/random_rounding.h"
#include "ops/update_rules.h"

namespace trainctl {

namespace {

constexpr std::int64_t block = element_piece;
constexpr std::int64_t batch = 512;  // blocks per parallel loop; limits the sums on the stack

double sum_of_squares(const float* x, std::int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = x[i];
    sum += value * value;
  }
  return sum;
}

void add_squares(const OpContext&, const SquareSum& args) {
  const std::int64_t count = args.x.numel();
  const std::int64_t blocks = (count + block - 1) / block;
  std::array<double, batch> sums;
  for (std::int64_t first = 0; first < blocks; first += batch) {
    const std::int64_t here = std::min(batch, blocks - first);
    parallel_for(here, 8, [&](std::int64_t begin, std::int64_t end) {
      float room[block];
      for (std::int64_t at = begin; at < end; ++at) {
        const std::int64_t start = (first + at) * block;
        const std::int64_t stop = std::min(count, start + block);
        sums[static_cast<std::size_t>(at)] =
            sum_of_squares(as_floats(args.x, start, stop, room), stop - start);
      }
    });
    for (std::int64_t at = 0; at < here; ++at) *args.result += sums[static_cast<std::size_t>(at)];
  }
}

}  // namespace

void square_sum_cpu(const OpContext& context, const Calls<SquareSum>& calls) {
  each_call<SquareSum, add_squares>(context, calls);
}

// The random words that round a part of a tensor (ops/random_rounding.h), in vector code. Internal
// to lib/ops.

class RandomWords {
 public:
  RandomWords(std::uint64_t seed, std::uint64_t stream, const RandomRounding& rounding)
      : lanes_(seed, stream), rounding_(rounding) {}

  /// Writes the words for elements [begin, end) of the part.
  void fill(std::int64_t begin, std::int64_t end, std::uint32_t* words) const {
    while (begin < end) {
      const std::int64_t left = rounding_.run - (begin + rounding_.skip) % rounding_.run;
      const std::int64_t count = std::min(end - begin, left);
      lanes_.bits(rounding_.whole(begin), count, words);
      begin += count;
      words += count;
    }
  }

 private:
  PhiloxLanes lanes_;
  const RandomRounding& rounding_;
};

namespace {

/// Reads and writes every value once, because memory limits the update. `kept` is the number of
/// states. Copy is the type of `compute`, or float without it; Weight, First and Second are the
/// types of the parameter and the states.
template <class Rule, int kept, class Weight, class Copy, class First, class Second>
void update_elements(const Update& args) {
  constexpr bool random = sizeof(First) < sizeof(float) || sizeof(Second) < sizeof(float);
  constexpr bool random_weight = sizeof(Weight) < sizeof(float);
  const Rule rule(args);
  const float clip = Rule::clipped ? args.state->clip_coefficient : 1.0F;
  const RandomWords words_of(args.state->seed, args.rounding.stream(args.state->step),
                             args.rounding);
  const RandomWords weight_words_of(args.state->seed, args.rounding.weight_stream(args.state->step),
                                    args.rounding);
  Weight* parameter = args.parameter.as<Weight>();
  First* first = static_cast<First*>(args.states[0].data);
  Second* second = static_cast<Second*>(args.states[1].data);
  Copy* compute = static_cast<Copy*>(args.compute.data);
  for_elements(args.parameter.numel(), [&, rule, clip](std::int64_t begin, std::int64_t end) {
    float room[element_piece];
    const float* gradient = as_floats(args.gradient, begin, end, room);
    std::uint32_t words[random ? element_piece : 1];
    if constexpr (random) words_of.fill(begin, end, words);
    std::uint32_t weight_words[random_weight ? element_piece : 1];
    if constexpr (random_weight) weight_words_of.fill(begin, end, weight_words);
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = gradient[i - begin] * clip;
      float one = 0;
      float two = 0;
      if constexpr (kept > 0) one = to_float(first[i]);
      if constexpr (kept > 1) two = to_float(second[i]);
      const float p = rule.next(to_float(parameter[i]), g, one, two);
      const std::uint32_t bits = random ? words[i - begin] : 0;
      if constexpr (kept > 0) first[i] = round_at_random<First>(one, bits);
      if constexpr (kept > 1) second[i] = round_at_random<Second>(two, bits >> 16);
      parameter[i] = round_at_random<Weight>(p, random_weight ? weight_words[i - begin] : 0);
      if constexpr (sizeof(Copy) < sizeof p) compute[i] = from_float<Copy>(p);
    }
  });
}

/// Selects the types of parameter and copy.
template <class Rule, int kept, class First, class Second>
void update_weights(const Update& args) {
  if (args.parameter.dtype == DType::bf16) {
    return update_elements<Rule, kept, bf16, float, First, Second>(args);
  }
  with_element_type(args.compute.empty() ? DType::f32 : args.compute.dtype, [&](auto copy) {
    update_elements<Rule, kept, float, decltype(copy), First, Second>(args);
  });
}

/// Selects the types of the states.
template <class Rule>
void update_by(const Update& args) {
  if (!Rule::keeps(args.constants)) return update_weights<Rule, 0, float, float>(args);
  if constexpr (!Rule::narrow_states) {
    update_weights<Rule, Rule::states, float, float>(args);
  } else {
    with_fp32_or_bf16(args.states[0], [&](auto first) {
      if constexpr (Rule::states < 2) {
        update_weights<Rule, Rule::states, decltype(first), float>(args);
      } else {
        with_fp32_or_bf16(args.states[1], [&](auto second) {
          update_weights<Rule, Rule::states, decltype(first), decltype(second)>(args);
        });
      }
    });
  }
}

void update_one(const OpContext&, const Update& args) {
  if (args.state->found_inf) return;
  with_rule<float, true>(args.rule, [&]<class Rule>() { update_by<Rule>(args); });
}

}  // namespace

void update_cpu(const OpContext& context, const Calls<Update>& calls) {
  each_call<Update, update_one>(context, calls);
}

}  // namespace trainctl
