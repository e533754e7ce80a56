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

/// The row that `unit` reads: "layers.N.input" or "head.input".
inline std::string input_row(int unit, std::int64_t layers) {
  return unit == head_unit(layers) ? "head.input" : block_prefix(unit) + "input";
}
/// The row with the gradient of what `unit` gives to the next: "layers.N.d_output".
inline std::string gradient_row(int unit) {
  return (unit == 0 ? "embedding." : block_prefix(unit)) + "d_output";
}
/// Before the name of a chunk's rows: "chunk.0."
inline std::string chunk_prefix(int chunk) { return "chunk." + std::to_string(chunk) + "."; }

/// The rows of the activation table (activations.h) between the chunks of one stage. What goes to
/// another stage has a row of its own; what stays is written where the next chunk reads it.
struct ChunkRows {
  const ChunkPlaces& places;
  int stage = 0;
  const std::vector<UnitRange>& units;  // per chunk of the stage
  std::int64_t layers = 0;

  /// What the chunk reads, and the gradient of what it makes; not for the ends of the model.
  std::string input(int chunk) const {
    const UnitRange& range = of(chunk);
    return range.empty() ? chunk_prefix(chunk) + "input" : input_row(range.begin, layers);
  }
  std::string output_gradient(int chunk) const {
    const UnitRange& range = of(chunk);
    return range.empty() ? chunk_prefix(chunk) + "d_output" : gradient_row(range.end - 1);
  }
  /// What it makes, and the gradient of what it reads.
  std::string output(int chunk) const {
    if (places.sends(stage, chunk)) return chunk_prefix(chunk) + "output";
    return input(places.after(stage, chunk)->chunk);
  }
  std::string input_gradient(int chunk) const {
    if (places.receives(stage, chunk)) return chunk_prefix(chunk) + "d_input";
    return output_gradient(places.before(stage, chunk)->chunk);
  }
  /// The same of a unit of the chunk, which is not the model's last or first one.
  std::string output_of(int chunk, int unit) const {
    return unit + 1 == of(chunk).end ? output(chunk) : input_row(unit + 1, layers);
  }
  std::string input_gradient_of(int chunk, int unit) const {
    return unit == of(chunk).begin ? input_gradient(chunk) : gradient_row(unit - 1);
  }

 private:
  const UnitRange& of(int chunk) const { return units[static_cast<std::size_t>(chunk)]; }
};

}  // namespace trainctl
