// The prices of the parts of a step on a device: seconds of a matrix product, of attention, of
// bytes that are read and written, and of a collective. Nothing here knows of layers or schedules.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "base/dtype.h"
#include "plan/prices/machine.h"

namespace trainctl {

/// y [rows, columns] = a [rows, inner] x b [inner, columns], or `groups` of them at once.
struct PricedProduct {
  std::int64_t rows = 0, columns = 0, inner = 0;
  std::int64_t groups = 1;
  bool accumulates = false;  // y is fp32 and is added to
};

/// Causal attention of `rows` queries in all, each head of `head_dim` features, over sequences of
/// `keys` keys.
struct PricedAttention {
  std::int64_t rows = 0, heads = 0, head_dim = 0, keys = 0;
  std::int64_t block = 0;  // keys that a kernel works on at once: of a part of the ring
  double met_keys = 0;     // of a query, on average: under the mask
  double flops() const;
};

/// Sets the ratios of the times of the device's tables of products and attention to those of the
/// formulas. They stay so where figures of the machine change later.
void compare_table(Machine& machine);

/// The figures of products of a type, or nullptr: bf16 stands for fp16.
const ProductFigures* products_of(const DeviceFigures& device, DType type);

class PriceList {
 public:
  /// The prices for values of `type` on `mesh`. `machine` has products of the type.
  PriceList(Machine machine, const Mesh& mesh, DType type);

  /// Over tiles [a, b] and splits s of the sums, with w = ceil(rows / a) ceil(columns / b) s groups
  /// / processors waves: the least of
  ///   v 2 a b processors (inner / s + half) / (peak reached quality sustained)
  /// with v = wave ceil(w) + (1 - wave) max(w, 1); s > 1 adds (4 s + 4) bytes of each element. Not
  /// less than what its operands take to be read and written; then the launch. Where the device has
  /// a table, a product of it takes its time / sustained, and others that of the formula as much
  /// longer as the nearest of the table, the less the further it is: not at all from a distance of
  /// 2 on, the sum of |log| of the three extents.
  double product(const PricedProduct& one) const;
  /// By the kernel of the software, or where it is "scores" as two products and what is read and
  /// written of each score. Where the kernel has a table, the time is as much longer than that of
  /// the formula as the nearest pass of the table is, by the sum of |log| of length and features of
  /// a head, and less as for products: sequences and heads only multiply the work.
  double attention(const PricedAttention& one, bool backward) const;
  /// Bytes read and written.
  double memory(double bytes) const;
  /// Seconds of an operation that works element by element, by the software.
  double elements(double bytes) const;
  /// One collective of `bytes` over the members of a group: inside the first level by its table,
  /// over each further one its rounds and bytes, of which the ranks of the level below carry a part
  /// each. All ranks of a host do the same at once.
  double collective(GroupOperation operation, const GroupSpan& span, double bytes) const;
  double message(std::size_t level, double bytes) const;
  double host_copy(double bytes) const { return bytes / machine_.device.host_bandwidth; }

  const Machine& machine() const { return machine_; }
  /// As span_of, kept for the next time.
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
