#include "formats/print/timeline.h"

#include <algorithm>
#include <span>

#include "plan/cost/estimate.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

namespace {

BlockKind kind_of(const Action& row) {
  if (row.kind == ActionKind::forward) return BlockKind::forward;
  return row.kind == ActionKind::backward_weight ? BlockKind::weight_gradient
                                                 : BlockKind::input_gradient;
}

/// The input of one replica per stage: all replicas execute the same rows.
SimulationInput one_replica(const Plan& plan) {
  SimulationInput input;
  input.keep_times = true;
  input.cost = [layers = plan.model.layers](const RankRows&, const Action& row) {
    return layer_cost(row, layers);
  };
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    input.ranks.push_back(RankRows{schedule_input(plan, stage), 0, 0, held.actions});
  }
  return input;
}

/// Whether `row` continues the block before it.
bool joins(const TimeBlock& block, const TimeBlock& row) {
  const bool same = block.stage == row.stage && block.microbatch == row.microbatch &&
                    block.chunk == row.chunk && block.finish == row.start;
  return same && (block.kind == BlockKind::forward) == (row.kind == BlockKind::forward);
}

void add_row(std::vector<TimeBlock>& blocks, const TimeBlock& row) {
  if (blocks.empty() || !joins(blocks.back(), row)) {
    blocks.push_back(row);
    return;
  }
  if (blocks.back().kind != row.kind) blocks.back().kind = BlockKind::backward;
  blocks.back().finish = row.finish;
}

/// The longest repetition that starts at a word: `period` words, `times` times.
struct Repeat {
  std::size_t period = 1;
  std::size_t times = 1;
};

Repeat longest_repeat(std::span<const std::string> words, std::size_t begin) {
  constexpr std::size_t longest_period = 6;
  Repeat best;
  for (std::size_t period = 1; period <= longest_period; ++period) {
    std::size_t end = begin + period;
    while (end < words.size() && words[end] == words[end - period]) ++end;
    const std::size_t times = (end - begin) / period;
    if (times > 1 && times * period > best.times * best.period) best = {period, times};
  }
  return best;
}

std::string folded(std::span<const std::string> words) {
  std::string text;
  for (std::size_t at = 0; at < words.size();) {
    const Repeat repeat = longest_repeat(words, at);
    std::string run;
    for (std::size_t i = 0; i < repeat.period; ++i) run += (i == 0 ? "" : " ") + words[at + i];
    if (repeat.period > 1 && repeat.times > 1) run = "x (" + run + ")";
    text += text.empty() ? "" : ", ";
    text += repeat.times > 1 ? std::to_string(repeat.times) + " " + run : run;
    at += repeat.period * repeat.times;
  }
  return text;
}

/// The blocks of the rows of each rank, `scale` units of time in one of the simulator.
Timeline timeline_of(const SimulationInput& input, const Simulation& played, double scale) {
  std::vector<RowTime> times = played.times;
  std::sort(times.begin(), times.end(), [](const RowTime& a, const RowTime& b) {
    return a.rank != b.rank ? a.rank < b.rank : a.row < b.row;
  });
  Timeline timeline;
  timeline.length = scale * played.seconds;
  std::vector<double> busy(input.ranks.size(), 0.0);
  for (const RowTime& time : times) {
    const auto stage = static_cast<std::size_t>(time.rank);
    const Action& row = input.ranks[stage].rows[static_cast<std::size_t>(time.row)];
    if (!is_pass(row.kind) || row.begin == row.end) continue;
    busy[stage] += time.finish - time.start;
    add_row(timeline.blocks, {time.rank, kind_of(row), row.microbatch, row.chunk,
                              scale * time.start, scale * time.finish});
  }
  std::erase_if(timeline.blocks, [](const TimeBlock& block) { return block.length() <= 0; });
  for (const double time : busy) {
    timeline.idle_fraction.push_back(played.seconds > 0 ? 1 - time / played.seconds : 0);
  }
  return timeline;
}

}  // namespace

Timeline make_timeline(const Plan& plan) {
  const SimulationInput input = one_replica(plan);
  return timeline_of(input, simulate(input), 1);
}

Timeline make_timeline(const PlayedStep& step) {
  Timeline timeline = timeline_of(step.input, step.played, 1000);
  timeline.in_milliseconds = true;
  return timeline;
}

bool splits_backward(const StagePlan& stage) {
  const Action* before = nullptr;
  for (const Action& row : stage.schedule) {
    if (!is_pass(row.kind)) continue;
    if (row.kind == ActionKind::backward_weight &&
        (before == nullptr || before->kind != ActionKind::backward_input ||
         before->microbatch != row.microbatch || before->chunk != row.chunk)) {
      return true;
    }
    before = &row;
  }
  return false;
}

std::string folded_order(const StagePlan& stage) {
  const bool split = splits_backward(stage);
  std::vector<std::string> words;
  for (const Action& row : stage.schedule) {
    if (!is_pass(row.kind) || (!split && row.kind == ActionKind::backward_weight)) continue;
    words.emplace_back(row.kind == ActionKind::forward          ? "F"
                       : row.kind == ActionKind::backward_input ? "B"
                                                                : "W");
  }
  const std::span<const std::string> all = words;
  const auto warmup = std::min(words.size(), static_cast<std::size_t>(std::max(0, stage.warmup)));
  const std::string first = folded(all.first(warmup));
  const std::string rest = folded(all.subspan(warmup));
  return first + (first.empty() || rest.empty() ? "" : ", ") + rest;
}

}  // namespace trainctl
