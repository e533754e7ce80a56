// Rotary position embedding (Su et al. 2021) of the first features of each head:
//   (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin); inverse negates sin.
// x1 and x2 are the halves of these features (the layout of Hugging Face's Llama), or neighbours.
#pragma once

#include <vector>

#include "base/kinds.h"
#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct Rope {
  Tensor x;         // [tokens, heads * head_dim] fp32, bf16 or fp16, in place
  Tensor position;  // [tokens] i32
  Tensor table;     // [positions, R] fp32: cos of each pair, then sin of each pair, of R features
  std::int64_t head_dim = 0;
  bool inverse = false;   // the backward pass
  bool adjacent = false;  // pairs are neighbours
};

void rope(const OpContext& context, const Rope& args);

/// Frequencies of the table: theta^(-2 pair / R), and what a longer context makes of them.
struct RopeScaling {
  RopeType type = RopeType::none;
  double theta = 10000.0;
  double factor = 1.0;                                             // of linear, llama3 and yarn
  double original_positions = 8192;                                // of llama3, yarn and longrope
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // of llama3
  double beta_fast = 32, beta_slow = 1;                            // of yarn: turns
  bool truncate = true;             // of yarn: its bounds are whole pairs
  double alpha = 1;                 // of alpha
  std::vector<double> pair_factor;  // of longrope: [R / 2]
  double amplitude = 1;             // of cos and sin
};

/// Fills a host table [positions, R] in double precision, rounded once.
void fill_rope_table(const RopeScaling& scaling, const Tensor& table);

/// Queries that grow with their position p (Llama 4, Ministral 3) are multiplied by 1 + beta ln(1 +
/// floor((p + add) / floor)).
struct Temperature {
  double beta = 0;
  double floor = 1;
  double add = 0;
};

/// Fills a host table [positions, R] with which rope() multiplies each of R features by the
/// position's factor: it turns them by no angle. `inverse` multiplies by the same.
void fill_temperature_table(const Temperature& temperature, const Tensor& table);

}  // namespace trainctl
