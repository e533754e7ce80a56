// Ranks with rows of their own for the tests of simulate(), and what breaks them.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "pipeline.h"

namespace trainctl {

using Kind = ActionKind;

inline bool mentions(const Simulation& result, const std::string& text) {
  return std::any_of(result.violations.begin(), result.violations.end(),
                     [&](const std::string& one) { return one.find(text) != std::string::npos; });
}

/// Ranks with rows of their own, so that a test may change those of one.
struct Ranks {
  std::vector<RankRows> ranks;  // without rows
  std::vector<std::vector<Action>> rows;
  std::vector<std::vector<BucketSum>> buckets;
  std::function<double(const RankRows&, const Action&)> cost;
  std::vector<std::vector<GatherBlock>> gathers{};

  Simulation play(bool keep_times = false) const {
    SimulationInput input{.ranks = ranks,
                          .buckets = buckets,
                          .cost = cost,
                          .keep_times = keep_times,
                          .gathers = gathers};
    for (std::size_t i = 0; i < rows.size(); ++i) input.ranks[i].rows = rows[i];
    return simulate(input);
  }
};

/// Data parallelism: every rank has the refined rows of one stage.
inline Ranks data_parallel(int ranks, int microbatches, int units, const std::vector<int>& ready) {
  const ScheduleInput input = stage_input({.microbatches = microbatches, .width = units}, 0);
  Ranks all;
  const std::vector<BucketSum> buckets = ranks > 1 ? reduced(ready) : std::vector<BucketSum>{};
  const auto rows = refine(schedule_no_pipelining(input), input, buckets);
  for (int rank = 0; rank < ranks; ++rank) {
    all.ranks.push_back({input, rank, 0, {}});
    all.rows.push_back(rows);
  }
  all.buckets = {buckets};
  return all;
}

inline Action unit_row(Kind kind, int microbatch) { return Action{kind, 0, microbatch, 0, 1}; }

/// One row list per stage of a pipeline with one unit per stage.
inline Ranks pipeline(const std::vector<std::vector<Action>>& stages, int microbatches) {
  Ranks all;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    ScheduleInput input{.stages = static_cast<int>(stages.size()),
                        .stage = static_cast<int>(stage),
                        .microbatches = microbatches,
                        .group_size = 1,
                        .units = {{0, 1}}};
    all.ranks.push_back({input, 0, 0, {}});
  }
  all.rows = stages;
  return all;
}

/// All F, then all B, with messages where the stage has a neighbour.
inline std::vector<Action> gpipe(int stage, int stages, int microbatches) {
  std::vector<Action> rows;
  const bool first = stage == 0;
  const bool last = stage == stages - 1;
  for (int m = 0; m < microbatches; ++m) {
    rows.push_back(unit_row(Kind::fetch, m));
    if (!first) rows.push_back(unit_row(Kind::receive_forward, m));
    rows.push_back(unit_row(Kind::forward, m));
    if (!last) rows.push_back(unit_row(Kind::send_forward, m));
  }
  for (int m = 0; m < microbatches; ++m) {
    if (!last) rows.push_back(unit_row(Kind::receive_backward, m));
    rows.push_back(unit_row(Kind::backward_input, m));
    rows.push_back(unit_row(Kind::backward_weight, m));
    if (!first) rows.push_back(unit_row(Kind::send_backward, m));
  }
  rows.push_back(Action{.kind = Kind::step});
  return rows;
}

inline std::size_t index_of(const std::vector<Action>& rows, const std::string& text) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (to_string(rows[i]) == text) return i;
  }
  FAIL("no row " << text);
  return 0;
}

inline void drop(std::vector<Action>& rows, const std::string& text) {
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(index_of(rows, text)));
}
inline void exchange(std::vector<Action>& rows, const std::string& a, const std::string& b) {
  std::swap(rows[index_of(rows, a)], rows[index_of(rows, b)]);
}

}  // namespace trainctl
