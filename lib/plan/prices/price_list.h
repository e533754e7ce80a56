// The prices of the parts of a step on a device: seconds of a matrix product, of attention, of
// bytes read and written, and of a collective. Layers and schedules are not known here.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "base/dtype.h"
#include "plan/prices/machine.h"

namespace trainctl {

/// y [rows, columns] = a [rows, inner] x b [inner, columns], or `groups` such products at once.
struct PricedProduct {
  std::int64_t rows = 0, columns = 0, inner = 0, groups = 1;
  bool accumulates = false;  // the product is added to y in fp32
};

/// Causal attention of `rows` queries in total, with `heads` heads of `head_dim` features, over
/// sequences of `keys` keys.
struct PricedAttention {
  std::int64_t rows = 0, heads = 0, head_dim = 0, keys = 0;
  std::int64_t block = 0;  // keys per kernel call: the length of one part of the ring
  double met_keys = 0;     // average number of keys of a query, under the mask
  double flops() const;
};

/// Sets the ratios of measured times in the device's tables to those of the formulas, for products
/// and attention. Later changes of the machine's figures do not affect the ratios.
void compare_table(Machine& machine);

/// The figures of products of a dtype, or nullptr; fp16 uses those of bf16.
const ProductFigures* products_of(const DeviceFigures& device, DType type);

class PriceList {
 public:
  /// The prices for values of `type` on `mesh`. `machine` must have products of this dtype.
  PriceList(Machine machine, const Mesh& mesh, DType type);

  /// Seconds of a product. Over tiles [a, b] and splits s of the sums, with w = ceil(rows / a)
  /// ceil(columns / b) s groups / processors waves, it is the minimum of
  ///   v 2 a b processors (inner / s + half) / (peak reached quality sustained)
  /// with v = wave ceil(w) + (1 - wave) max(w, 1); s > 1 adds (4 s + 4) bytes of each element. It
  /// is at least the time to read and write the operands; then the launch is added. Products in the
  /// device's table take its time / sustained, others the formula times the ratio of the nearest
  /// entry, fading with the distance (sum of |log| of the three extents) up to 2.
  double product(const PricedProduct& one) const;
  /// Seconds of attention by the kernel of the software, or if it is "scores" as two products and
  /// the bytes read and written of each score. If the kernel has a table, the formula is scaled by
  /// the ratio of the nearest entry, by the sum of |log| of length and features of a head, fading
  /// as for products; sequences and heads only multiply the work.
  double attention(const PricedAttention& one, bool backward) const;
  /// Seconds to read and write `bytes` in total.
  double memory(double bytes) const;
  /// Seconds of an element-wise operation with the software's kernels.
  double elements(double bytes) const;
  /// Seconds of one collective of `bytes` over the members of a group: inside the first level by
  /// its table, over each further one its rounds and bytes, of which each rank of the level below
  /// carries a part. All ranks of a host run it at the same time.
  double collective(GroupOperation operation, const GroupSpan& span, double bytes) const;
  double message(std::size_t level, double bytes) const;
  double host_copy(double bytes) const { return bytes / machine_.device.host_bandwidth; }

  const Machine& machine() const { return machine_; }
  /// Like span_of(), but cached.
  const GroupSpan& span(GroupKind kind, std::int64_t ranks, std::int64_t rank) const;
  const Mesh& mesh() const { return mesh_; }
  /// Replaces the kernel of attention.
  void use_attention(const std::string& kernel) { machine_.software.attention = kernel; }

 private:
  double formula(const PricedProduct& one) const;
  double beside_formula(const PricedProduct& one) const;
  double attention_formula(const PricedAttention& one, bool backward) const;
  const ProductFigures& products() const { return *products_of(machine_.device, type_); }
  double inside(GroupOperation operation, double ranks, double bytes) const;
  double scores(const PricedAttention& one, bool backward) const;

  Machine machine_;
  Mesh mesh_;
  DType type_;
  mutable std::map<std::tuple<GroupKind, std::int64_t, std::int64_t>, GroupSpan> spans_;
};

}  // namespace trainctl
