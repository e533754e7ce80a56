// The units of a model, numbered in the order of the forward pass: 0 is the embedding, 1 to
// `layers` are the blocks, layers + 1 is the final norm with the head. Also the stage and chunk of
// each unit, and how stages exchange messages (parallel.pipeline).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/choices.h"

namespace trainctl {

/// Units [begin, end), numbered over the whole model.
struct UnitRange {
  int begin = 0, end = 0;

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

/// The first `most` blocks among the units of a stage's chunks, in order.
inline std::vector<int> blocks_of(const std::vector<UnitRange>& units, std::int64_t layers,
                                  std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  std::vector<int> first;
  for (const UnitRange& range : units) {
    const UnitRange blocks = blocks_in(range, layers);
    for (int unit = blocks.begin; unit < blocks.end && std::ssize(first) < most; ++unit) {
      first.push_back(unit);
    }
  }
  return first;
}

/// Whether one of a stage's chunks holds `unit`.
inline bool holds(const std::vector<UnitRange>& units, int unit) {
  return std::ranges::any_of(units, [&](const UnitRange& range) { return range.holds(unit); });
}

/// The prefix of the names of a block's parameters and activations: "layers.3." for unit 4.
inline std::string block_prefix(int unit) { return "layers." + std::to_string(unit - 1) + "."; }

struct ChunkAt {
  int stage = 0;
  int chunk = 0;  // index in the stage
  friend bool operator==(const ChunkAt&, const ChunkAt&) = default;
};

/// The order in which a micro-batch passes through all chunks of a model. It decides between which
/// ranks activations and gradients are sent.
struct ChunkPlaces {
  int stages = 1;
  int chunks = 1;  // per stage
  ChunkRoute route = "round_robin";

  constexpr int count() const { return stages * chunks; }
  /// The position of a chunk in the forward pass, from 0; the inverse of at().
  constexpr int place(int stage, int chunk) const {
    return chunk * stages + (turned(chunk) ? stages - 1 - stage : stage);
  }
  constexpr ChunkAt at(int place) const {
    const int chunk = place / stages;
    const int step = place % stages;
    return {turned(chunk) ? stages - 1 - step : step, chunk};
  }
  constexpr std::optional<ChunkAt> before(int stage, int chunk) const {
    const int here = place(stage, chunk);
    return here > 0 ? std::optional(at(here - 1)) : std::nullopt;
  }
  constexpr std::optional<ChunkAt> after(int stage, int chunk) const {
    const int here = place(stage, chunk);
    return here + 1 < count() ? std::optional(at(here + 1)) : std::nullopt;
  }
  /// Whether the chunk's input comes from another stage.
  constexpr bool receives(int stage, int chunk) const {
    const auto from = before(stage, chunk);
    return from && from->stage != stage;
  }
  /// Whether the chunk's output goes to another stage.
  constexpr bool sends(int stage, int chunk) const {
    const auto to = after(stage, chunk);
    return to && to->stage != stage;
  }
  constexpr int first_stage() const { return at(0).stage; }
  constexpr int last_stage() const { return at(count() - 1).stage; }

 private:
  constexpr bool turned(int chunk) const { return route == "down_and_up" && chunk % 2 == 1; }
};

/// The units of each chunk of each stage.
struct StageMap {
  int stages = 1;
  int chunks = 1;  // per stage
  ChunkRoute route = "round_robin";
  std::vector<UnitRange> all;  // [stage * chunks + chunk]
  const UnitRange& at(int stage, int chunk) const {
    return all[static_cast<std::size_t>(stage * chunks + chunk)];
  }
  ChunkPlaces places() const { return {stages, chunks, route}; }
};

/// The prefix of the names of a chunk's rows: "chunk.0."
inline std::string chunk_prefix(int chunk) { return "chunk." + std::to_string(chunk) + "."; }

/// How stages exchange messages, and from which buffers. Rows of the schedule are ordered
/// accordingly by arrange_messages() (plan/schedule/schedule.h).
enum class MessageMode : std::uint8_t {
  batched,     // all messages of neighbouring rows are posted, then the receives awaited
  single,      // each row is posted alone; a receive is awaited before the next row
  overlapped,  // a row only posts a receive; a separate row waits for it
};

struct MessageRules {
  MessageMode mode = MessageMode::batched;
  /// Outputs for another stage stay in the micro-batch's slot. If false, each chunk has one output
  /// buffer, which is free again after the send.
  bool keeps_outputs = false;
  /// Messages have another dtype than the layers, and their own buffers: a send row casts before it
  /// sends, and a received tensor is cast when it is awaited.
  bool casts = false;
};

}  // namespace trainctl
