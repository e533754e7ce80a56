#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

constexpr std::size_t most_blocks = 6000;

const char* class_of(BlockKind kind) {
  switch (kind) {
    case BlockKind::forward: return "f";
    case BlockKind::backward: return "b";
    case BlockKind::input_gradient: return "g";
    case BlockKind::weight_gradient: return "w";
  }
  return "";
}

const char* words_for(BlockKind kind) {
  switch (kind) {
    case BlockKind::forward: return "forward";
    case BlockKind::backward: return "backward (B and W)";
    case BlockKind::input_gradient: return "gradient of the input (B)";
    case BlockKind::weight_gradient: return "gradient of the weights (W)";
  }
  return "";
}

/// Where the drawing ends: at the last block, or earlier where there would be too many.
double end_of(const Timeline& timeline) {
  if (timeline.blocks.size() <= most_blocks) return timeline.length;
  std::vector<double> finishes;
  for (const TimeBlock& block : timeline.blocks) finishes.push_back(block.finish);
  const auto cut = finishes.begin() + static_cast<std::ptrdiff_t>(most_blocks);
  std::nth_element(finishes.begin(), cut, finishes.end());
  return *cut;
}

std::string block_svg(const TimeBlock& block, double scale, double top, double height, int chunks) {
  const double x = label_width + block.start * scale;
  const double width = block.length() * scale;
  std::string css = class_of(block.kind);
  if (block.chunk > 0) css += " c" + std::to_string((block.chunk - 1) % 3 + 1);
  if (block.microbatch % 2 == 1) css += " odd";
  std::string title = "stage " + std::to_string(block.stage) + ", " + words_for(block.kind) +
                      ", micro-batch " + std::to_string(block.microbatch);
  if (chunks > 1) title += ", chunk " + std::to_string(block.chunk);
  title += ": " + svg_number(block.start) + " to " + svg_number(block.finish);
  std::string svg = svg_rect({x, top, width, height}, css, title);
  std::string label = std::to_string(block.microbatch);
  if (chunks > 1 && width >= 26) label += "." + std::to_string(block.chunk);
  if (width >= 7.5 * static_cast<double>(label.size())) {
    svg += svg_text(x + width / 2, top + height / 2 + 4, "middle", label, "on");
  }
  return svg;
}

std::string axis_svg(double end, double scale, double bottom) {
  double step = std::pow(10, std::floor(std::log10(std::max(end, 1.0))));
  if (end / step < 4) step /= 2;
  if (end / step < 4) step /= 2;
  std::string svg;
  for (double at = 0; at <= end + 1e-9; at += step) {
    svg += svg_text(label_width + at * scale, bottom + 16, "middle", svg_number(at), "soft small");
  }
  return svg;
}

std::string gantt_svg(const Plan& plan, const Timeline& timeline, double end) {
  constexpr double height = 28;
  constexpr double band = 34;
  double shortest = timeline.length;
  for (const TimeBlock& block : timeline.blocks) {
    if (block.length() > 0) shortest = std::min(shortest, block.length());
  }
  const double room = page_width - label_width - 12;
  const double wanted = shortest > 0 ? 9 / shortest : 1;
  const double scale = end > 0 ? std::clamp(wanted, room / end, std::max(room, 12000.0) / end) : 1;
  const double bottom = band * plan.map.stages;
  std::string svg = "<div class=\"scroll\"><svg id=\"gantt\" width=\"" +
                    svg_number(label_width + end * scale + 12) + "\" height=\"" +
                    svg_number(bottom + 22) + "\" role=\"img\" aria-label=\"Schedule\">\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const double top = band * stage;
    svg += svg_text(0, top + height / 2 + 4, "start", "stage " + std::to_string(stage), "soft");
    svg += svg_rect({label_width, top, end * scale, height}, "track", "");
  }
  for (const TimeBlock& block : timeline.blocks) {
    if (block.start >= end || block.length() <= 0) continue;
    TimeBlock drawn = block;
    drawn.finish = std::min(block.finish, end);
    svg += block_svg(drawn, scale, band * block.stage, height, plan.map.chunks);
  }
  return svg + axis_svg(end, scale, bottom) + "</svg></div>\n";
}

std::string legend_of(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string text = "<div class=\"legend\">";
  for (const auto& [css, words] : entries) {
    text += "<span><i class=\"" + css + "\"></i>" + escaped(words) + "</span>";
  }
  return text + "</div>\n";
}

std::string idle_table(const Plan& plan, const Timeline& timeline) {
  std::string text =
      "<table><tr><th>stage</th><th class=\"n\">warm-up forwards</th>"
      "<th class=\"n\">micro-batches kept</th><th class=\"n\">idle</th>"
      "<th style=\"padding-left:24px\">order</th></tr>\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    text += "<tr><td>" + std::to_string(stage) + "</td><td class=\"n\">" +
            std::to_string(held.warmup) + "</td><td class=\"n\">" + std::to_string(held.slots) +
            "</td><td class=\"n\">" +
            percent(timeline.idle_fraction[static_cast<std::size_t>(stage)]) +
            "</td><td class=\"mono\" style=\"padding-left:24px\">" + folded_order(held) +
            "</td></tr>\n";
  }
  return text + "</table>\n";
}

}  // namespace

std::string stages_html(const Plan& plan) {
  constexpr double height = 24;
  constexpr double band = 30;
  const double scale = (page_width - label_width - 12) / plan.units();
  std::string svg = "<div class=\"scroll\"><svg width=\"" + svg_number(page_width) +
                    "\" height=\"" + svg_number(band * plan.map.stages + 20) +
                    "\" role=\"img\" aria-label=\"Stage map\">\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const double top = band * stage;
    svg += svg_text(0, top + height / 2 + 4, "start", "stage " + std::to_string(stage), "soft");
    svg += svg_rect({label_width, top, scale * plan.units(), height}, "track", "");
    for (int chunk = 0; chunk < plan.map.chunks; ++chunk) {
      const ChunkLayers& held = plan.map.at(stage, chunk);
      const double x = label_width + scale * held.first_unit;
      const double width = scale * (held.end_unit - held.first_unit);
      if (width <= 0) continue;
      const std::string words = held_text(held);
      svg += svg_rect(
          {x, top, width, height}, "unit-s" + std::to_string(stage % 6),
          "stage " + std::to_string(stage) + ", chunk " + std::to_string(chunk) + ": " + words);
      if (width > 6.4 * static_cast<double>(words.size())) {
        svg += svg_text(x + width / 2, top + height / 2 + 4, "middle", words, "on");
      }
    }
  }
  const double bottom = band * plan.map.stages + 12;
  svg += svg_text(label_width, bottom, "start", "embedding", "soft small");
  svg += svg_text(page_width - 12, bottom, "end", "head", "soft small");
  const std::string note = grouped_count(plan.map.stages, "stage") + " of " +
                           grouped_count(plan.map.chunks, "chunk") +
                           "; the model runs from left to right, one row per pipeline stage.";
  return "<section id=\"stages\">\n<h2>Stages</h2>\n<p>" + escaped(note) + "</p>\n" + svg +
         "</svg></div>\n</section>\n";
}

std::string schedule_html(const Plan& plan, const Timeline& timeline) {
  const double end = end_of(timeline);
  std::string note = plan.schedule + ", " + grouped_count(plan.microbatches, "micro-batch") +
                     ", bubble " + percent(plan.bubble_fraction) +
                     ". F, B and W of one layer take one unit of time each, all else none.";
  if (end < timeline.length) {
    note += " The first " + svg_number(end) + " of " + svg_number(timeline.length) +
            " units are drawn.";
  }
  std::vector<std::pair<std::string, std::string>> legend;
  for (const BlockKind kind : {BlockKind::forward, BlockKind::backward, BlockKind::input_gradient,
                               BlockKind::weight_gradient}) {
    const bool used = std::any_of(timeline.blocks.begin(), timeline.blocks.end(),
                                  [kind](const TimeBlock& block) { return block.kind == kind; });
    if (used) legend.emplace_back(class_of(kind), words_for(kind));
  }
  legend.emplace_back("track", "idle");
  return "<section id=\"schedule\">\n<h2>Schedule</h2>\n<p>" + escaped(note) + "</p>\n" +
         legend_of(legend) + gantt_svg(plan, timeline, end) + idle_table(plan, timeline) +
         "</section>\n";
}

}  // namespace trainctl
