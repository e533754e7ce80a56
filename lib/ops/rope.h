// Rotary position embedding (Su et al. 2021) of the first features of each head, as pairs (x1, x2):
//   (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin); inverse negates sin.
// x1 and x2 are in the two halves of these features (as in Hugging Face's Llama), or adjacent.
#pragma once

#include <vector>

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct Rope {
  Tensor x;         // [tokens, heads * head_dim] fp32, bf16 or fp16, in place
  Tensor position;  // [tokens] i32
  Tensor table;     // [positions, R] fp32 for R features: cos of each pair, then sin of each pair
  std::int64_t head_dim = 0;
  bool inverse = false;   // the backward pass
  bool adjacent = false;  // the features of a pair are adjacent
};

void rope(const OpContext& context, const Rope& args);

/// The frequencies of the table: theta^(-2 pair / R), changed for longer contexts as `type` says.
struct RopeScaling {
  RopeType type = RopeType::none;
  double theta = 10000.0;
  double factor = 1.0;                                             // for linear, llama3 and yarn
  double original_positions = 8192;                                // for llama3, yarn and longrope
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // for llama3
  double beta_fast = 32, beta_slow = 1;                            // for yarn, in turns
  bool truncate = true;             // for yarn: rounds bounds to whole pairs
  double alpha = 1;                 // for alpha
  std::vector<double> pair_factor;  // for longrope: [R / 2] divisors
  double amplitude = 1;             // multiplies cos and sin
};

/// Fills a host table [positions, R], computed in double precision and rounded once.
void fill_rope_table(const RopeScaling& scaling, const Tensor& table);

/// Fills a host table [positions, R] with which rope() scales R features of queries by a factor of
/// their position p (Llama 4, Ministral 3): 1 + beta ln(1 + floor((p + add) / floor)). All angles
/// are 0, so `inverse` scales by the same factor.
void fill_temperature_table(double beta, double floor, double add, const Tensor& table);

}  // namespace trainctl
