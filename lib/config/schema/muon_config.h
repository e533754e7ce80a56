// The section optimizer.muon: constants of Muon, explained in docs/optimizers.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

/// The coefficients a, b, c of one Newton-Schulz step X <- aX + (bA + cA^2)X, A = XX^T.
using MuonTriple = std::array<double, 3>;
using MuonSet = OneOf<"simple|quintic|polar_express|deepseek_v4">;
/// Coefficients: a named set, or a list of triples.
struct MuonCoefficients {
  MuonSet set = "quintic";
  std::vector<MuonTriple> list;  // if empty, `set` applies
  bool operator==(const MuonCoefficients&) const = default;
};

/// The scale of an update of a matrix with m rows and n columns: 0.2 sqrt(max(m, n)), sqrt(max(m,
/// n)), sqrt(max(1, m / n)), sqrt(m / n), in this order.
using MuonScale = OneOf<"match_adamw|spectral|shape|unit_rms">;
/// Type of Muon's products. automatic: bf16 on CUDA if matrix products have 16 bits, else fp32.
using MuonProducts = OneOf<"auto|fp32|bf16">;

/// How parameters form matrices for an update: gate over up as one; q over k over v as one; q, k, v
/// and out divided by heads; the parts of latent attention.
using MuonItem = OneOf<"gate_up|qkv|heads|mla_parts">;
using MuonItems = std::vector<MuonItem>;
inline bool has(const MuonItems& items, MuonItem item) {
  return std::ranges::find(items, item) != items.end();
}

struct MuonConfig {
  double momentum = 0.95;
  bool nesterov = true;
  MuonCoefficients coefficients;
  std::optional<std::int64_t> steps;  // default: the length of the set; 5 for simple
  MuonScale scale = "match_adamw";
  double scale_factor = 1;
  double eps = 1e-7;
  MuonProducts ns_dtype = "auto";
  MuonItems items;
  bool operator==(const MuonConfig&) const = default;
};

inline constexpr MuonTriple muon_simple[] = {{3.4445, -4.7750, 2.0315}};
inline constexpr MuonTriple muon_quintic[] = {{4.0848, -6.8946, 2.9270},
                                              {3.9505, -6.3029, 2.6377},
                                              {3.7418, -5.5913, 2.3037},
                                              {2.8769, -3.1427, 1.2046},
                                              {2.8366, -3.0525, 1.2012}};
/// Coefficients of Amsel et al. 2025, with their safety factor of 1.01.
inline constexpr MuonTriple muon_polar_express[] = {
    {8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.5250},
    {3.2856, -2.4153, 0.4853},   {2.2779, -1.6198, 0.3985}, {1.8726, -1.2307, 0.3585},
    {1.8564, -1.2132, 0.3568},   {1.8750, -1.2500, 0.3750}};
inline constexpr MuonTriple muon_finish{2.0, -1.5, 0.5};
inline constexpr MuonTriple muon_deepseek_v4[] = {
    muon_simple[0], muon_simple[0], muon_simple[0], muon_simple[0], muon_simple[0],
    muon_simple[0], muon_simple[0], muon_simple[0], muon_finish,    muon_finish};

/// The triples of all steps. With more steps than triples, simple and quintic restart from their
/// first triple; other sets and lists repeat the last.
inline std::vector<MuonTriple> muon_steps(const MuonConfig& muon) {
  constexpr std::int64_t simple_steps = 5;
  std::span<const MuonTriple> set = muon.coefficients.list;
  bool again = false;
  std::int64_t count = 0;
  if (set.empty()) {
    const MuonSet name = muon.coefficients.set;
    again = name == "simple" || name == "quintic";
    if (name == "simple") {
      set = muon_simple;
      count = simple_steps;
    } else if (name == "quintic") {
      set = muon_quintic;
    } else {
      set = name == "polar_express" ? std::span<const MuonTriple>(muon_polar_express)
                                    : std::span<const MuonTriple>(muon_deepseek_v4);
    }
  }
  const auto length = std::ssize(set);
  count = muon.steps.value_or(std::max(count, length));
  std::vector<MuonTriple> steps;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = again ? i % length : std::min(i, length - 1);
    steps.push_back(set[static_cast<std::size_t>(at)]);
  }
  return steps;
}

}  // namespace trainctl
