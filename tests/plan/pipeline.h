// Whole pipelines of generated rows for the tests of schedules.
#pragma once

#include <string>
#include <vector>

#include "plan/generators/generators.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

using Texts = std::vector<std::string>;

inline Texts texts(const std::vector<Action>& rows) {
  Texts all;
  for (const Action& row : rows) all.push_back(to_string(row));
  return all;
}

struct PipelineSizes {
  int stages = 1;
  int chunks = 1;
  int microbatches = 1;
  int group_size = 0;  // 0: `stages`
  int width = 1;       // units of each chunk
};

inline ScheduleInput stage_input(const PipelineSizes& sizes, int stage,
                                 ChunkRoute route = "round_robin") {
  ScheduleInput input;
  input.stages = sizes.stages;
  input.stage = stage;
  input.microbatches = sizes.microbatches;
  input.group_size = sizes.group_size > 0 ? sizes.group_size : sizes.stages;
  for (int chunk = 0; chunk < sizes.chunks; ++chunk) {
    const ChunkPlaces places{sizes.stages, sizes.chunks, route};
    const int begin = places.place(stage, chunk) * sizes.width;
    input.units.push_back({begin, begin + sizes.width});
  }
  input.route = route;
  return input;
}

/// Buckets that are all reduced, by their ready units.
inline std::vector<BucketSum> reduced(const std::vector<int>& units) {
  std::vector<BucketSum> sums;
  for (const int unit : units) sums.push_back({.ready_unit = unit, .reduced = true});
  return sums;
}

/// The rows of every stage; they are played from here.
struct SamplePipeline {
  std::vector<ScheduleInput> inputs;
  std::vector<std::vector<Action>> rows;
  std::vector<std::vector<BucketSum>> buckets;
  int replicas = 1;
  int inner = 1;

  SamplePipeline() = default;
  SamplePipeline(PipelineScheduler scheduler, const PipelineSizes& sizes) {
    for (int stage = 0; stage < sizes.stages; ++stage) {
      inputs.push_back(stage_input(sizes, stage, traits_of(scheduler).route));
      rows.push_back(make_schedule(scheduler, inputs.back()));
    }
  }

  SimulationInput simulation() && = delete;  // it looks at these rows
  SimulationInput simulation() const& {
    SimulationInput simulation;
    for (std::size_t stage = 0; stage < rows.size(); ++stage) {
      for (int rank = 0; rank < replicas * inner; ++rank) {
        simulation.ranks.push_back({inputs[stage], rank / inner, rank % inner, rows[stage]});
      }
    }
    simulation.buckets = buckets;
    return simulation;
  }
};

/// F : B : W = 1 : 1 : 1 for each unit; nothing else takes time.
inline double unit_cost(const RankRows&, const Action& action) {
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward_input:
    case ActionKind::backward_weight: return action.end - action.begin;
    default: return 0;
  }
}

inline std::vector<std::string> short_names(const std::vector<Action>& rows) {
  std::vector<std::string> names;
  for (const Action& row : rows) names.push_back(short_name(row));
  return names;
}

/// The rows of the given kinds.
inline std::vector<Action> only(const std::vector<Action>& rows, ActionKind a, ActionKind b) {
  std::vector<Action> some;
  for (const Action& row : rows) {
    if (row.kind == a || row.kind == b) some.push_back(row);
  }
  return some;
}

inline std::string first_of(const std::vector<std::string>& violations) {
  return violations.empty() ? "" : violations.front();
}

}  // namespace trainctl
