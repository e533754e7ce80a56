// Where each chunk of the model lies: its stage, and which layers it holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/schema/schedules.h"
#include "plan/tables/unit_range.h"

namespace trainctl {

struct ChunkAt {
  int stage = 0;
  int chunk = 0;  // of that stage
  friend bool operator==(const ChunkAt&, const ChunkAt&) = default;
};

/// The places of a model's chunks in the order in which data passes them. It alone decides between
/// which ranks activations and gradients travel.
struct ChunkPlaces {
  int stages = 1;
  int chunks = 1;  // per stage
  ChunkRoute route = ChunkRoute::round_robin;

  constexpr int count() const { return stages * chunks; }
  /// From 0; the inverse of at().
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
  /// Whether its output goes to another stage.
  constexpr bool sends(int stage, int chunk) const {
    const auto to = after(stage, chunk);
    return to && to->stage != stage;
  }
  constexpr int first_stage() const { return at(0).stage; }
  constexpr int last_stage() const { return at(count() - 1).stage; }

 private:
  constexpr bool turned(int chunk) const {
    return route == ChunkRoute::down_and_up && chunk % 2 == 1;
  }
};

/// One model chunk of one stage. Units are numbered over the whole model: 0 is the embedding, 1 to
/// `layers` the blocks, layers + 1 the head.
struct ChunkLayers {
  std::int64_t first = 0;  // layer
  std::int64_t count = 0;  // layers; 0 is legal (a stage of only the embedding or the head)
  bool embedding = false;
  bool head = false;
  int first_unit = 0;  // units [first_unit, end_unit)
  int end_unit = 0;
};

struct StageMap {
  int stages = 1;
  int chunks = 1;  // per stage
  ChunkRoute route = ChunkRoute::round_robin;
  std::vector<ChunkLayers> all;  // [stage * chunks + chunk]
  const ChunkLayers& at(int stage, int chunk) const {
    return all[static_cast<std::size_t>(stage * chunks + chunk)];
  }
  ChunkPlaces places() const { return {stages, chunks, route}; }
};

/// Before the name of a chunk's rows: "chunk.0."
inline std::string chunk_prefix(int chunk) { return "chunk." + std::to_string(chunk) + "."; }

}  // namespace trainctl
