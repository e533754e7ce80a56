#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

constexpr int most_stages_drawn = 8;
constexpr double most_columns = 108;  // of the drawing itself

char letter_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::forward: return 'F';
    case BlockKind::weight_gradient: return 'W';
    default: return 'B';
  }
}

/// "F0", or "F0.1" where stages have several chunks.
std::string label_of(const TimeBlock& block, int chunks) {
  std::string text = letter_of(block.kind) + std::to_string(block.microbatch);
  if (chunks > 1) text += "." + std::to_string(block.chunk);
  return text;
}

/// Columns per unit of time in which every block has room for its label and a space, or 0.
double scale_of(const Timeline& timeline, int chunks) {
  double scale = 0;
  for (const TimeBlock& block : timeline.blocks) {
    const double room = static_cast<double>(label_of(block, chunks).size()) + 1;
    if (block.length() > 0) scale = std::max(scale, room / block.length());
  }
  return timeline.length * scale <= most_columns ? scale : 0;
}

/// One character per column, the micro-batch's last digit: 0-9 for F, a-j for B, A-J for W.
char narrow_letter(const TimeBlock& block) {
  const char first = block.kind == BlockKind::forward           ? '0'
                     : block.kind == BlockKind::weight_gradient ? 'A'
                                                                : 'a';
  return static_cast<char>(first + block.microbatch % 10);
}

std::string drawing(const Plan& plan, const Timeline& timeline) {
  if (plan.map.stages > most_stages_drawn || timeline.length <= 0) return "";
  double scale = scale_of(timeline, plan.map.chunks);
  const bool labels = scale > 0;
  if (!labels) {
    double shortest = timeline.length;
    for (const TimeBlock& block : timeline.blocks) shortest = std::min(shortest, block.length());
    if (shortest <= 0 || timeline.length / shortest > most_columns) return "";
    scale = 1 / shortest;
  }
  std::vector<std::string> lines(
      static_cast<std::size_t>(plan.map.stages),
      std::string(static_cast<std::size_t>(std::ceil(timeline.length * scale)) + 1, '.'));
  for (const TimeBlock& block : timeline.blocks) {
    const auto begin = static_cast<std::size_t>(std::lround(block.start * scale));
    const auto end = static_cast<std::size_t>(std::lround(block.finish * scale));
    std::string cell(end - begin, labels ? '-' : narrow_letter(block));
    if (labels) {
      const std::string label = label_of(block, plan.map.chunks);
      cell.replace(0, std::min(label.size(), cell.size()), label);
      cell.back() = ' ';
    }
    lines[static_cast<std::size_t>(block.stage)].replace(begin, cell.size(), cell);
  }
  std::string text;
  for (std::size_t stage = 0; stage < lines.size(); ++stage) {
    lines[stage].resize(static_cast<std::size_t>(std::lround(timeline.length * scale)));
    text += labelled("stage " + std::to_string(stage), "|" + lines[stage] + "|");
  }
  const char* legend = labels ? "'.' idle; B with its W where nothing separates them"
                              : "micro-batch (last digit): 0-9 F, a-j B, A-J W apart; '.' idle";
  return text + labelled("", legend);
}

/// The refined rows of the stage of one rank, in runs.
std::string rows_of_rank(const Plan& plan, std::int64_t rank) {
  constexpr std::size_t most = 40;
  const StagePlan& held = plan.stage_of(rank);
  std::string text = labelled("rank " + std::to_string(rank),
                              grouped_count(static_cast<std::int64_t>(held.actions.size()), "row"));
  const std::size_t count = held.actions.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (count > most && i == most / 2) {
      const std::size_t left_out = count - most;
      text += "    ... " + std::to_string(left_out) + " more rows (--format json has them) ...\n";
      i += left_out;
    }
    text += "    " + to_string(held.actions[i]) + "\n";
  }
  return text;
}

}  // namespace

std::string schedule_section(const PrintInput& input, const Timeline& timeline) {
  const Plan& plan = input.plan;
  std::string text = "schedule  " + plan.schedule + ", " +
                     grouped_count(plan.microbatches, "micro-batch") + ", bubble " +
                     percent(plan.bubble_fraction) + "\n";
  if (plan.map.chunks > 1) {
    const bool turns = plan.map.route == ChunkRoute::down_and_up;
    text += labelled("chunks", std::to_string(plan.map.chunks) +
                                   (turns ? " per stage, down the stages and back up"
                                          : " per stage, taken in groups of " +
                                                grouped_count(plan.group_size, "micro-batch")));
  }
  const std::string drawn = drawing(plan, timeline);
  if (!drawn.empty()) {
    text += drawn;
  } else {
    int same = 0;  // stages whose order equals that of the stage before
    std::string before;
    for (int stage = 0; stage <= plan.map.stages; ++stage) {
      const std::string order =
          stage < plan.map.stages ? folded_order(plan.stages[static_cast<std::size_t>(stage)]) : "";
      if (stage > 0 && order != before) {
        text += labelled("stage " + span_text(stage - 1 - same, stage - 1), before);
        same = 0;
      } else if (stage > 0) {
        ++same;
      }
      before = order;
    }
  }
  return input.rank >= 0 ? text + rows_of_rank(plan, input.rank) : text;
}

}  // namespace trainctl
