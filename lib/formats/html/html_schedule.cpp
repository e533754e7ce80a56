#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/json_text.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

constexpr std::size_t most_blocks = 20000;

/// Where the drawing ends: at the last block, or earlier where there would be too many.
double end_of(const Timeline& timeline) {
  if (timeline.blocks.size() <= most_blocks) return timeline.length;
  std::vector<double> finishes;
  for (const TimeBlock& block : timeline.blocks) finishes.push_back(block.finish);
  const auto cut = finishes.begin() + static_cast<std::ptrdiff_t>(most_blocks);
  std::nth_element(finishes.begin(), cut, finishes.end());
  return *cut;
}

/// Rounded to what can be seen.
double rounded(double time) { return std::round(time * 1000) / 1000; }

/// [start, length, kind as the enumerators count, micro-batch, chunk] of a stage's blocks.
void write_blocks(JsonText& json, const Timeline& timeline, int stage, double end) {
  json.open_array();
  for (const TimeBlock& block : timeline.blocks) {
    if (block.stage != stage || block.start >= end || block.length() <= 0) continue;
    json.open_array(JsonText::Form::one_line);
    json.value(rounded(block.start));
    json.value(rounded(std::min(block.finish, end) - block.start));
    json.value(static_cast<int>(block.kind));
    json.value(block.microbatch);
    json.value(block.chunk);
    json.close();
  }
  json.close();
}

std::string blocks_data(const Plan& plan, const Timeline& timeline, double end) {
  JsonText json;
  json.open_object(JsonText::Form::one_line);
  json.member("end", rounded(end));
  json.member("chunks", plan.map.chunks);
  json.key("stages").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) write_blocks(json, timeline, stage, end);
  json.close();
  json.close();
  return page_data("schedule-data", json.take());
}

std::string idle_table(const Plan& plan, const Timeline& timeline) {
  std::string text =
      "<table>" +
      head_row({"stage", "#warm-up forwards", "#micro-batches kept", "#idle", "order"}) +
      "<tbody>\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    const double idle = timeline.idle_fraction[static_cast<std::size_t>(stage)];
    text += "<tr>" + cell(std::to_string(stage)) + cell(std::to_string(held.warmup), "n") +
            cell(std::to_string(held.slots), "n") + cell(percent(idle), "n") +
            cell(folded_order(held), "mono") + "</tr>\n";
  }
  return scroll_region("Order of work by stage", text + "</tbody></table>\n");
}

std::string stage_row(const Plan& plan, int stage) {
  std::string bars;
  std::string words;
  for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
    const ChunkLayers& held = plan.map.at(stage, chunk);
    const double width = static_cast<double>(held.end_unit - held.first_unit) / plan.units();
    if (width <= 0) continue;
    bars += "<i class=\"c" + std::to_string(stage % 2 == 0 ? 0 : 2) +
            "\" style=\"left:" + css_percent(static_cast<double>(held.first_unit) / plan.units()) +
            ";width:" + css_percent(width) + "\"></i>";
    words += (words.empty() ? "" : "; ") + held_text(held);
  }
  return "<li><b>stage " + std::to_string(stage) + "</b><span>" + escaped(words) +
         "</span><div class=\"idle\">" + bars + "</div></li>\n";
}

}  // namespace

std::string stages_html(const Plan& plan) {
  const std::string note = grouped_count(plan.map.stages, "stage") + " of " +
                           grouped_count(plan.map.chunks, "chunk") +
                           ". Bars: the model from the embedding (left) to the head (right).";
  std::string text = "<section id=\"stages\">\n<h2>Stages</h2>\n<p>" + escaped(note) +
                     "</p>\n<ul class=\"stages\">\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) text += stage_row(plan, stage);
  return text + "</ul>\n</section>\n";
}

std::string schedule_html(const Plan& plan, const Timeline& timeline) {
  const double end = end_of(timeline);
  std::string note = plan.schedule + ", " + grouped_count(plan.microbatches, "micro-batch") +
                     ", bubble " + percent(plan.bubble_fraction) +
                     ". F, B and W of one layer take one unit of time each, all else none. Blocks "
                     "have the number of their micro-batch";
  note += plan.map.chunks > 1 ? " and chunk." : ".";
  if (end < timeline.length) {
    note += " The first " + printed("%.4g", end) + " of " + printed("%.4g", timeline.length) +
            " units are drawn.";
  }
  return "<section id=\"schedule\">\n<h2>Schedule</h2>\n<p>" + escaped(note) +
         "</p>\n<div id=\"gantt\"></div>\n" + blocks_data(plan, timeline, end) +
         idle_table(plan, timeline) + "</section>\n";
}

}  // namespace trainctl
