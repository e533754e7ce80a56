// Activation memory of a transformer by Korthikanti et al. 2022, "Reducing Activation Recomputation
// in Large Transformer Models" (arXiv 2205.05198), table 2 and section 4.3: 16-bit activations, an
// MLP of 4 h, dropout everywhere and attention scores that are stored. For comparison only: the
// plan's own estimate counts what is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "config/schema/config.h"
#include "plan/plan.h"

namespace trainctl {

/// The rows of table 2, in its order.
enum class Technique : std::uint8_t {
  none,                       // s b h (34 + 5 a s / h)
  tensor,                     // s b h (10 + 24 / t + 5 a s / (h t))
  tensor_sequence,            // s b h / t (34 + 5 a s / h)
  tensor_selective,           // s b h (10 + 24 / t)
  tensor_sequence_selective,  // s b h / t 34
  full,                       // s b h 2
};
inline constexpr std::array<Technique, 6> all_techniques{Technique::none,
                                                         Technique::tensor,
                                                         Technique::tensor_sequence,
                                                         Technique::tensor_selective,
                                                         Technique::tensor_sequence_selective,
                                                         Technique::full};
std::string_view name_of(Technique technique);

struct KorthikantiInput {
  double sequence = 0, micro_batch = 0, hidden = 0, heads = 0, layers = 0;
  double vocab = 0;
  double tp = 1, pp = 1;
  double chunks = 1;  // per stage
};
KorthikantiInput korthikanti_input(const Plan& plan);
/// The row that is nearest to a plan: attention scores are never stored here, as with selective
/// recomputation; `recompute.enable` is full recomputation.
Technique technique_of(const Plan& plan, const RecomputeConfig& recompute);

/// Bytes of one layer and micro-batch on one rank.
double korthikanti_layer(const KorthikantiInput& input, Technique technique);
/// Bytes on the first stage (equation 5): all L layers' worth, since pp micro-batches of L / pp
/// layers are in flight, times 1 + (pp - 1) / (pp chunks) if interleaved; the dropout behind the
/// embedding, s b h pp / t; and with one stage 4 s b h / t (1 + v / h) of norm, output and loss.
double korthikanti_total(const KorthikantiInput& input, Technique technique);

}  // namespace trainctl
