// What attention does to one row of scores: masking, maximum, exponentials, dropout. Internal to
// lib/ops/cpu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "ops/cpu/attention/places.h"
#include "ops/cpu/vector/philox_lanes.h"
#include "ops/cpu/vector/vector_math.h"

namespace trainctl {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// Rows of scores are handled up to this column. A product takes row_step rows together, so a row
/// is read as far as the last of them sees. Steps, or rows where keys are the rows, are widened,
/// too. Both reach less than row_step further.
template <class Dot>
std::int64_t padded_columns(std::int64_t last) {
  return std::min(block_keys, round_up(last + 2 * Dot::row_step, 32));
}

/// Columns that a row with `last` of them goes through: whole vectors.
inline std::int64_t row_columns(std::int64_t last) { return round_up(last, 16); }

/// Gives the scores of keys that the row does not see -infinity; returns the columns to go through.
inline std::int64_t mask_row(float* scores, std::int64_t first, std::int64_t last) {
  const std::int64_t columns = row_columns(last);
  std::fill(scores, scores + first, -infinity);
  std::fill(scores + last, scores + columns, -infinity);
  return columns;
}

/// The largest of the first `columns` scores, a multiple of 16.
inline float row_max(const float* scores, std::int64_t columns) {
  Vector highest = *reinterpret_cast<const Vector*>(scores);
  for (std::int64_t i = vector_lanes; i < columns; i += vector_lanes) {
    const Vector next = *reinterpret_cast<const Vector*>(scores + i);
    highest = next > highest ? next : highest;
  }
  float result = highest[0];
  for (int lane = 1; lane < vector_lanes; ++lane) {
    result = highest[lane] > result ? highest[lane] : result;
  }
  return result;
}

/// scores = exp(scale * scores - shift), where no exponent is large; returns their sum.
inline float exponentials(float* scores, float scale, float shift, std::int64_t columns) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < columns; ++i) {
    const float weight = fast_exp_bounded(scores[i] * scale - shift);
    sum += weight;
    scores[i] = weight;
  }
  return sum;
}

/// scores = tanh(scores factor), the parts of their cap; the factor is scale / cap.
inline void take_parts_of_cap(float* scores, float factor, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) scores[i] = fast_tanh(scores[i] * factor);
}

/// d_scores times the slope of the cap, by the parts of it.
inline void differentiate_cap(const float* parts, float* d_scores, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) d_scores[i] *= 1 - parts[i] * parts[i];
}

/// d_scores = weights (d_weights - mean), where d_scores holds d_weights.
inline void differentiate(const float* weights, float* d_scores, float mean, std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) d_scores[i] = weights[i] * (d_scores[i] - mean);
}

/// The same under dropout, where d_scores holds the gradient of the dropped weights; the weights
/// become the dropped ones.
inline void differentiate(float* weights, float* d_scores, const float* factors, float mean,
                          std::int64_t columns) {
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    d_scores[i] = weights[i] * (d_scores[i] * factors[i] - mean);
    weights[i] *= factors[i];
  }
}

template <class T>
float dot_row(const T* a, const T* b, std::int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < count; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

/// Dropout's factors for the keys of one query, where there is dropout.
class KeyDropout {
 public:
  explicit KeyDropout(const AttentionDropout& dropout) : dropout_(dropout) {}

  bool given() const { return dropout_.key.probability > 0.0F; }

  /// factors[i] belongs to position `key` + i, i < columns; all are 1 without dropout.
  void fill(const QueryBlock& block, std::int64_t row, std::int64_t key, std::int64_t columns,
            float* factors) const {
    const StepState& state = *dropout_.key.state;
    const DropoutFactors random(state.seed, dropout_stream(state.step, dropout_.key.site),
                                dropout_.key.probability);
    const std::int64_t query = std::min(row, block.count - 1);
    const std::int64_t token = dropout_.global_token.as<std::int64_t>()[block.row + query];
    const std::int64_t index =
        (token * dropout_.heads_total + dropout_.first_head + block.head) * dropout_.seq_length +
        key;
    random.for_runs(static_cast<std::uint64_t>(index), columns,
                    [factors](std::int64_t at, std::int64_t count, const float* run) {
                      std::copy(run, run + count, factors + at);
                    });
  }

 private:
  const AttentionDropout& dropout_;
};

}  // namespace trainctl
