#include "plan/prices/price_list.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace trainctl {

namespace {

constexpr std::int64_t max_splits = 8;
constexpr std::int64_t min_split = 256;  // least length of a split sum

double as_double(std::int64_t value) { return static_cast<double>(value); }

double tiles_over(std::int64_t size, std::int64_t tile) {
  return as_double((size + tile - 1) / tile);
}

/// Log-log interpolation between the sizes of the table. Above the last size, time is proportional
/// to bytes; below the first, it is the time of the first.
double interpolate(const CollectiveTable& table, double bytes) {
  const auto& sizes = table.bytes;
  if (bytes <= sizes.front()) return table.seconds.front();
  if (bytes >= sizes.back()) return table.seconds.back() * bytes / sizes.back();
  const auto next =
      static_cast<std::size_t>(std::ranges::upper_bound(sizes, bytes) - sizes.begin());
  const double part = std::log(bytes / sizes[next - 1]) / std::log(sizes[next] / sizes[next - 1]);
  return table.seconds[next - 1] * std::pow(table.seconds[next] / table.seconds[next - 1], part);
}

/// The bytes that each of `ranks` ranks sends per byte of the collective.
double sent_share(GroupOperation operation, double ranks) {
  const double share = (ranks - 1) / ranks;
  if (operation == GroupOperation::all_reduce) return 2 * share;
  return operation == GroupOperation::broadcast ? 1 : share;
}

}  // namespace

double PricedAttention::flops() const {
  return 4 * as_double(rows) * as_double(heads * head_dim) * met_keys;
}

const ProductFigures* products_of(const DeviceFigures& device, DType type) {
  const auto found = device.products.find(type == DType::f32 ? "fp32" : "bf16");
  return found == device.products.end() ? nullptr : &found->second;
}

PriceList::PriceList(Machine machine, const Mesh& mesh, DType type)
    : machine_(std::move(machine)), mesh_(mesh), type_(type) {}

namespace {

/// Compares with the formula for bf16, or for the only measured dtype.
void compare_attention(Machine& machine) {
  Machine burst = machine;
  burst.device.sustained = burst.software.attention_speed = burst.software.attention_64 = 1;
  const auto bf16 = machine.device.products.find("bf16");
  const bool wide = bf16 == machine.device.products.end() || bf16->second.guessed;
  for (auto& [kernel, figures] : machine.device.attention) {
    burst.software.attention = kernel;
    burst.device.attention[kernel].table.clear();
    const PriceList list(burst, Mesh{}, wide ? DType::f32 : DType::bf16);
    for (AttentionTime& one : figures.table) {
      const double met = as_double(one.keys + 1) / 2;
      const PricedAttention priced{one.keys, one.heads, one.head_dim, one.keys, one.keys, met};
      one.beside = one.seconds / list.attention(priced, one.backward);
    }
  }
}

/// The ratio of the nearest entry to the formula, fading with `distance` to 1 at 2.
template <class Entries, class Distance>
double beside_nearest(const Entries& table, const Distance& distance) {
  constexpr double farthest = 2;
  double nearest = farthest;
  double beside = 1;
  for (const auto& entry : table) {
    const double apart = distance(entry);
    if (apart >= nearest) continue;
    nearest = apart;
    beside = std::pow(entry.beside, 1 - apart / farthest);
  }
  return beside;
}

double apart(std::int64_t x, std::int64_t y) {
  return std::abs(std::log(as_double(x) / as_double(y)));
}

}  // namespace

void compare_table(Machine& machine) {
  for (const auto& [name, type] : {std::pair("fp32", DType::f32), std::pair("bf16", DType::bf16)}) {
    const auto found = machine.device.products.find(name);
    if (found == machine.device.products.end()) continue;
    std::vector<ProductTime> table = std::exchange(found->second.table, {});
    Machine burst = machine;  // measurements are too short to slow the clock
    burst.device.sustained = 1;
    const PriceList list(burst, Mesh{}, type);
    for (ProductTime& entry : table) {
      entry.beside = entry.seconds /
                     list.product({entry.rows, entry.columns, entry.inner, 1, entry.accumulates});
    }
    found->second.table = std::move(table);
  }
  compare_attention(machine);
}

double PriceList::product(const PricedProduct& one) const {
  if (one.rows == 0 || one.columns == 0 || one.inner == 0) return 0;
  return formula(one) * beside_formula(one);
}

double PriceList::beside_formula(const PricedProduct& one) const {
  if (one.groups > 1) return 1;
  return beside_nearest(products().table, [&](const ProductTime& entry) {
    if (entry.accumulates != one.accumulates) return std::numeric_limits<double>::infinity();
    return apart(entry.rows, one.rows) + apart(entry.columns, one.columns) +
           apart(entry.inner, one.inner);
  });
}

double PriceList::formula(const PricedProduct& one) const {
  const DeviceFigures& device = machine_.device;
  const double made = as_double(one.rows) * as_double(one.columns) * as_double(one.groups);
  const double rate = products().peak * products().reached * device.sustained;
  const auto processors = as_double(device.processors);
  double best = std::numeric_limits<double>::infinity();
  for (const ProductTile& tile : products().tiles) {
    for (std::int64_t splits = 1; splits <= max_splits; splits *= 2) {
      if (splits > 1 && one.inner / splits < min_split) break;
      const double waves = tiles_over(one.rows, tile.rows) * tiles_over(one.columns, tile.columns) *
                           as_double(splits * one.groups) / processors;
      const double taken =
          products().wave * std::ceil(waves) + (1 - products().wave) * std::max(waves, 1.0);
      double seconds = taken * processors * 2 * as_double(tile.rows * tile.columns) *
                       (as_double(one.inner) / as_double(splits) + products().half) /
                       (rate * tile.quality);
      if (splits > 1) seconds += memory(made * as_double(4 * splits + 4)) + products().launch;
      best = std::min(best, seconds);
    }
  }
  const double read =
      as_double(one.rows) * as_double(one.inner) + as_double(one.inner) * as_double(one.columns);
  const double bytes = as_double(size_of(type_) * one.groups) * read +
                       made * (one.accumulates ? 8.0 : as_double(size_of(type_)));
  return std::max(best, memory(bytes)) + products().launch;
}

double PriceList::scores(const PricedAttention& one, bool backward) const {
  const std::int64_t groups =
      std::max<std::int64_t>(1, one.rows * one.heads / std::max<std::int64_t>(1, one.keys));
  const std::int64_t rows = std::min(one.rows, one.keys);
  const double products = product({rows, one.keys, one.head_dim, groups}) +
                          product({rows, one.head_dim, one.keys, groups});
  const double bytes = as_double(one.rows) * as_double(one.heads) * as_double(one.keys) *
                       machine_.software.score_bytes;
  return (backward ? 2 : 1) * (products / machine_.software.attention_speed + memory(bytes));
}

double PriceList::attention(const PricedAttention& one, bool backward) const {
  const auto kernel = machine_.device.attention.find(machine_.software.attention);
  if (kernel == machine_.device.attention.end()) return scores(one, backward);
  const std::int64_t length = one.block > 0 ? one.block : one.keys;
  const double beside = beside_nearest(kernel->second.table, [&](const AttentionTime& entry) {
    if (entry.backward != backward) return std::numeric_limits<double>::infinity();
    return apart(entry.keys, length) + apart(entry.head_dim, one.head_dim);
  });
  return attention_formula(one, backward) * beside;
}

double PriceList::attention_formula(const PricedAttention& one, bool backward) const {
  const AttentionFigures& figures = machine_.device.attention.at(machine_.software.attention);
  const double length = as_double(one.block > 0 ? one.block : one.keys);
  double rate = products().peak * figures.forward * machine_.device.sustained *
                machine_.software.attention_speed * length / (length + figures.half_length);
  if (one.head_dim <= 64) rate *= figures.head_64 * machine_.software.attention_64;
  constexpr double backward_work = 2.5;  // five products instead of two
  if (backward) rate *= figures.backward / backward_work;
  return one.flops() / rate + figures.launch;
}

double PriceList::memory(double bytes) const {
  return bytes / (machine_.device.memory_bandwidth * machine_.device.memory_reached);
}

double PriceList::elements(double bytes) const {
  return memory(bytes * machine_.software.elements) + machine_.software.launch;
}

double PriceList::inside(GroupOperation operation, double ranks, double bytes) const {
  const LinkLevel& level = machine_.levels.front();
  const auto found = machine_.device.collectives.find(operation);
  if (found == machine_.device.collectives.end() || found->second.empty()) {
    return level.latency * (operation == GroupOperation::all_reduce ? 2 : 1) +
           bytes * sent_share(operation, ranks) / level.bandwidth;
  }
  const auto distance = [&](const auto& entry) {
    return std::abs(std::log(as_double(entry.first) / ranks));
  };
  const auto nearest = std::ranges::min_element(found->second, {}, distance);
  // Corrects for another bandwidth than that of the table's device, and another number of ranks.
  const double as_many =
      sent_share(operation, ranks) / sent_share(operation, as_double(nearest->first));
  return interpolate(nearest->second, bytes * as_many * machine_.device.link / level.bandwidth);
}

double PriceList::collective(GroupOperation operation, const GroupSpan& span, double bytes) const {
  const bool shrinks =
      operation != GroupOperation::all_to_all && operation != GroupOperation::broadcast;
  double seconds = 0;
  double below = 1;
  for (std::size_t index = 0; index < span.size(); ++index) {
    const double ranks = span[index];
    if (ranks <= 1) continue;
    const double part = shrinks ? bytes / below : bytes;
    if (index == 0) {
      seconds += inside(operation, ranks, part);
    } else {
      const LinkLevel& level = machine_.levels[index];
      const double rounds =
          std::ceil(std::log2(ranks)) * (operation == GroupOperation::all_reduce ? 2 : 1);
      seconds += rounds * level.latency + part * sent_share(operation, ranks) / level.bandwidth;
    }
    below *= ranks;
  }
  return seconds;
}

double PriceList::message(std::size_t level, double bytes) const {
  const LinkLevel& joined = machine_.levels[level];
  return joined.latency + bytes / joined.bandwidth;
}

const GroupSpan& PriceList::span(GroupKind kind, std::int64_t ranks, std::int64_t rank) const {
  const auto key = std::tuple(kind, ranks, rank);
  const auto found = spans_.find(key);
  if (found != spans_.end()) return found->second;
  return spans_[key] = span_of(mesh_, machine_.levels, kind, ranks, rank);
}

}  // namespace trainctl
