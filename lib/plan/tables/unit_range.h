// The units of a model, numbered in the order in which data passes them: 0 is the embedding, 1 to
// `layers` are the blocks, layers + 1 is the final norm with the head.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace trainctl {

/// Units [begin, end), numbered over the whole model.
struct UnitRange {
  int begin = 0;
  int end = 0;

  constexpr bool empty() const { return begin >= end; }
  constexpr bool holds(int unit) const { return begin <= unit && unit < end; }
};

enum class UnitKind : std::uint8_t { embedding, block, head };

constexpr int head_unit(std::int64_t layers) { return static_cast<int>(layers) + 1; }

constexpr UnitKind kind_of_unit(int unit, std::int64_t layers) {
  if (unit < 1) return UnitKind::embedding;
  return unit < head_unit(layers) ? UnitKind::block : UnitKind::head;
}

constexpr UnitRange all_units(std::int64_t layers) { return {0, head_unit(layers) + 1}; }

/// The units of `range` that are blocks.
constexpr UnitRange blocks_in(UnitRange range, std::int64_t layers) {
  const int begin = std::max(range.begin, 1);
  return {begin, std::max(begin, std::min(range.end, head_unit(layers)))};
}

constexpr std::int64_t count_blocks(UnitRange range, std::int64_t layers) {
  const UnitRange blocks = blocks_in(range, layers);
  return blocks.end - blocks.begin;
}

/// Of all chunks of a stage.
inline std::int64_t count_blocks(const std::vector<UnitRange>& units, std::int64_t layers) {
  std::int64_t count = 0;
  for (const UnitRange& range : units) count += count_blocks(range, layers);
  return count;
}

/// Whether holds(unit) is true of a block among these units.
template <class Holds>
bool any_block(const std::vector<UnitRange>& units, std::int64_t layers, const Holds& holds) {
  for (const UnitRange& range : units) {
    const UnitRange blocks = blocks_in(range, layers);
    for (int unit = blocks.begin; unit < blocks.end; ++unit) {
      if (holds(unit)) return true;
    }
  }
  return false;
}

/// The units of a stage, in order, that are its first `layers` blocks.
inline std::vector<int> first_blocks(const std::vector<UnitRange>& units,
                                     std::int64_t layers_of_model, std::int64_t layers) {
  std::vector<int> first;
  for (const UnitRange& range : units) {
    const UnitRange blocks = blocks_in(range, layers_of_model);
    for (int unit = blocks.begin; unit < blocks.end && std::ssize(first) < layers; ++unit) {
      first.push_back(unit);
    }
  }
  return first;
}

/// Whether one of a stage's chunks holds `unit`.
inline bool holds(const std::vector<UnitRange>& units, int unit) {
  return std::any_of(units.begin(), units.end(),
                     [unit](const UnitRange& range) { return range.holds(unit); });
}

/// "layers.3." for unit 4: what the names of a block's parameters and activations begin with.
inline std::string block_prefix(int unit) { return "layers." + std::to_string(unit - 1) + "."; }

}  // namespace trainctl
