// Rotary position embedding, rotate-half form (Su et al. 2021; the layout of Hugging Face's Llama):
//   (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin), x1 and x2 the halves of each head; inverse
//   negates sin.
#pragma once

#include "device/tensor.h"
#include "ops/context.h"

namespace trainctl {

struct Rope {
  Tensor x;         // [tokens, heads * head_dim] fp32, bf16 or fp16, in place
  Tensor position;  // [tokens] i32
  Tensor table;     // [positions, head_dim] fp32: cos of each pair, then sin of each pair
  std::int64_t head_dim = 0;
  bool inverse = false;  // the backward pass
};

void rope(const OpContext& context, const Rope& args);

/// Frequencies of the table; `factor` > 1 applies Llama 3's scaling (Llama 3.1 report,
/// section 3.4.2).
struct RopeScaling {
  double theta = 10000.0;
  double factor = 1.0;
  double low_frequency_factor = 1.0;
  double high_frequency_factor = 4.0;
  double original_positions = 8192.0;
};

/// Fills a host table [positions, head_dim] in double precision, rounded once.
void fill_rope_table(const RopeScaling& scaling, const Tensor& table);

}  // namespace trainctl
