#include <algorithm>

#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/print/memory_models.h"
#include "formats/print/text.h"
#include "plan/rules/learning_rate.h"

namespace trainctl {

namespace {

std::string cell(const std::string& text, const char* css = "") {
  const std::string of_class = *css == '\0' ? "" : " class=\"" + std::string(css) + "\"";
  return "<td" + of_class + ">" + escaped(text) + "</td>";
}

std::string models_table(const PrintInput& input) {
  const std::vector<MemoryModelRows> models = memory_models(input);
  if (models.empty()) return "";
  std::string text =
      "<table style=\"margin-top:14px\"><tr><th>published model</th><th>of</th>"
      "<th>numbers</th></tr>\n";
  for (const MemoryModelRows& model : models) {
    text += "<tr>" + cell(model.name) + cell(model.about) + cell(numbers_text(model)) + "</tr>\n";
  }
  return text + "</table>\n";
}

std::string bar_svg(const MemoryEstimate& memory, int stage, double top, double scale) {
  constexpr double height = 24;
  std::string svg =
      svg_text(0, top + height / 2 + 4, "start", "stage " + std::to_string(stage), "soft");
  double x = label_width;
  int category = 0;
  for (const auto& [name, bytes] : memory_rows(memory)) {
    const double width = static_cast<double>(bytes) * scale;
    const std::string words = std::string(name) + " " + format_bytes(bytes);
    const std::string css = "m" + std::to_string(category++);
    if (width <= 0) continue;
    svg += svg_rect({x, top, width, height}, css, "stage " + std::to_string(stage) + ": " + words);
    if (width > 6.6 * static_cast<double>(words.size())) {
      svg += svg_text(x + width / 2, top + height / 2 + 4, "middle", words, "on");
    }
    x += width;
  }
  return svg + svg_text(x + 8, top + height / 2 + 4, "start", format_bytes(memory.total()));
}

/// What a stage's row says of its layout: "tp:0".
std::string split_words(const ParamSpec& row) {
  std::string text;
  for (const auto& [name, axis] : public_axes()) {
    const int dim = row.split_dim[static_cast<std::size_t>(axis)];
    if (dim < 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " cuts dim " + std::to_string(dim);
  }
  return text.empty() ? "whole" : text;
}

std::string parameter_rows(const Plan& plan, int stage) {
  const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
  const std::vector<int> buckets = bucket_of_each(held);
  std::string text;
  for (std::size_t i = 0; i < held.parameters.size(); ++i) {
    const ParamSpec& row = held.parameters[i];
    std::string owners;
    for (const std::string& kind : owner_groups(plan, stage, row)) {
      owners += (owners.empty() ? "" : ", ") + kind;
    }
    text += "<tr>" + cell(std::to_string(stage), "n") + cell(row.name, "mono") +
            cell(row.global_shape.to_string()) + cell(row.shape.to_string()) +
            cell(split_words(row)) + cell(owners) + cell(std::to_string(buckets[i]), "n") +
            cell(init_text(row)) + cell(row.decay ? "yes" : "no") + "</tr>\n";
  }
  return text;
}

bool same_uses(const std::vector<CollectiveUse>& left, const std::vector<CollectiveUse>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const CollectiveUse& a, const CollectiveUse& b) {
                      return a.name() == b.name() && a.group_name() == b.group_name() &&
                             a.count == b.count && a.bytes == b.bytes;
                    });
}

/// The rates over the whole run where there is a config, else those of the preview.
std::vector<RatePoint> rates_over_run(const PrintInput& input) {
  constexpr std::int64_t most = 240;
  const bool known = input.plan.steps > 0 && !input.plan.rates.empty();
  if (input.config == nullptr || !known) return input.plan.rates;
  std::vector<std::int64_t> steps;
  const std::int64_t count = std::min(input.plan.steps, most);
  for (std::int64_t i = 0; i < count; ++i) {
    steps.push_back(count == 1 ? 0
                               : (input.plan.steps - 1) / (count - 1) * i +
                                     (input.plan.steps - 1) % (count - 1) * i / (count - 1));
  }
  for (const RatePoint& point : input.plan.rates) steps.push_back(point.step);
  std::sort(steps.begin(), steps.end());
  PrintInput asked = input;
  asked.lr_at = std::move(steps);
  return rates_asked(asked);
}

}  // namespace

std::string memory_html(const PrintInput& input) {
  constexpr double band = 30;
  const Plan& plan = input.plan;
  std::int64_t most = 1;
  for (const StagePlan& stage : plan.stages) most = std::max(most, stage.memory.total());
  const double scale = (page_width - label_width - 90) / static_cast<double>(most);
  std::string legend = "<div class=\"legend\">";
  int category = 0;
  for (const auto& [name, bytes] : memory_rows(plan.stages.front().memory)) {
    legend += "<span><i class=\"m" + std::to_string(category++) + "\"></i>" + std::string(name) +
              "</span>";
  }
  std::string svg = "<div class=\"scroll\"><svg id=\"bars\" width=\"" + svg_number(page_width) +
                    "\" height=\"" + svg_number(band * plan.map.stages) +
                    "\" role=\"img\" aria-label=\"Memory\">\n";
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    svg += bar_svg(plan.stages[static_cast<std::size_t>(stage)].memory, stage, band * stage, scale);
  }
  return "<section id=\"memory\">\n<h2>Memory</h2>\n<p>Of one rank of each stage.</p>\n" + legend +
         "</div>\n" + svg + "</svg></div>\n" + models_table(input) + "</section>\n";
}

std::string communication_html(const Plan& plan) {
  std::string text =
      "<section id=\"communication\">\n<h2>Communication</h2>\n<p>Of one rank of each stage in one "
      "step.</p>\n<table><tr><th class=\"n\" style=\"width:60px\">stage</th>"
      "<th>what</th><th>group</th><th class=\"n\">calls</th><th class=\"n\">payload</th></tr>\n";
  bool any = false;
  for (int stage = 0; stage < plan.map.stages;) {
    int end = stage + 1;  // stages that do the same share their rows
    const auto& uses = plan.stages[static_cast<std::size_t>(stage)].communication;
    while (end < plan.map.stages &&
           same_uses(uses, plan.stages[static_cast<std::size_t>(end)].communication)) {
      ++end;
    }
    for (const CollectiveUse& use : uses) {
      any = true;
      text += "<tr>" + cell(span_text(stage, end - 1), "n") + cell(use.name()) + cell(use.group) +
              cell(format_grouped(use.count), "n") + cell(format_bytes(use.bytes), "n") + "</tr>\n";
    }
    stage = end;
  }
  if (!any) text += "<tr><td></td><td>none: one rank needs nobody</td></tr>\n";
  return text + "</table>\n</section>\n";
}

std::string rates_html(const PrintInput& input) {
  constexpr double height = 150;
  constexpr double left = 78;
  const std::vector<RatePoint> points = rates_over_run(input);
  if (points.empty()) return "";
  double most = 0;
  for (const RatePoint& point : points) most = std::max(most, point.learning_rate);
  const double width = page_width - left - 20;
  const auto last = static_cast<double>(std::max<std::int64_t>(1, points.back().step));
  std::string line;
  for (const RatePoint& point : points) {
    const double x = left + width * static_cast<double>(point.step) / last;
    const double y = 10 + height * (1 - (most > 0 ? point.learning_rate / most : 0));
    line += (line.empty() ? "" : " ") + svg_number(x) + "," + svg_number(y);
  }
  const std::string bottom = svg_number(10 + height);
  std::string svg = "<div class=\"scroll\"><svg width=\"" + svg_number(page_width) +
                    "\" height=\"" + svg_number(height + 34) +
                    "\" role=\"img\" aria-label=\"Learning rate\">\n<line x1=\"" +
                    svg_number(left) + "\" y1=\"" + bottom + "\" x2=\"" + svg_number(left + width) +
                    "\" y2=\"" + bottom + "\"/>\n";
  svg += "<polygon class=\"area\" points=\"" + svg_number(left) + "," + bottom + " " + line + " " +
         svg_number(left + width) + "," + bottom + "\"/>\n<polyline points=\"" + line + "\"/>\n";
  svg += svg_text(left - 8, 16, "end", printed("%.3g", most), "soft");
  svg += svg_text(left - 8, 14 + height, "end", "0", "soft");
  svg += svg_text(left, 28 + height, "start", "step 0", "soft");
  svg += svg_text(left + width, 28 + height, "end", "step " + format_grouped(points.back().step),
                  "soft");
  return "<section id=\"rates\">\n<h2>Learning rate</h2>\n<p>" +
         escaped("Over " + grouped_count(input.plan.steps, "step") + "; weight decay " +
                 printed("%.4g", points.front().weight_decay) + " to " +
                 printed("%.4g", points.back().weight_decay) + ".") +
         "</p>\n" + svg + "</svg></div>\n</section>\n";
}

std::string parameters_html(const PrintInput& input) {
  const Plan& plan = input.plan;
  std::size_t count = 0;
  std::string rows;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    count += plan.stages[static_cast<std::size_t>(stage)].parameters.size();
    rows += parameter_rows(plan, stage);
  }
  return "<details id=\"parameters\"><summary>Parameters (" +
         grouped_count(static_cast<std::int64_t>(count), "row") +
         ")</summary>\n<div class=\"scroll\"><table><tr><th class=\"n\">stage</th><th>name</th>"
         "<th>whole</th><th>of a rank</th><th>layout</th><th>gradient summed over</th>"
         "<th class=\"n\">bucket</th><th>starts as</th><th>decays</th></tr>\n" +
         rows + "</table></div></details>\n";
}

}  // namespace trainctl
