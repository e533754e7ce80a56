#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/print/memory_fit.h"
#include "formats/print/memory_models.h"
#include "formats/print/recompute_table.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

/// "2.38G", "512M": short enough for a narrow segment.
std::string figure(std::int64_t bytes) {
  constexpr const char* letters = "BKMGTP";
  auto value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 999.5 && unit < 5; ++unit) value /= 1024;
  const char* format = value >= 99.95 || unit == 0 ? "%.0f" : value >= 9.995 ? "%.1f" : "%.2f";
  return printed(format, value) + letters[unit];
}

std::string segments(const MemoryEstimate& memory) {
  std::string text;
  int category = 0;
  for (const auto& [name, bytes] : memory_rows(memory)) {
    const std::string css = "c" + std::to_string(category++);
    if (bytes <= 0) continue;
    const double share = static_cast<double>(bytes) / static_cast<double>(memory.total());
    text += "<span class=\"" + css + "\" style=\"flex-grow:" + printed("%.4f", 100 * share) +
            "\" title=\"" + std::string(name) + ": " + format_bytes(bytes) + "\">" + figure(bytes) +
            "</span>";
  }
  return text;
}

/// What the bars to scale are parts of: the limit, or more where a rank needs more.
double axis_of(const Plan& plan, const MemoryFit& fit) {
  const auto most = static_cast<double>(plan.most_memory().device());
  return std::max(std::min(fit.gibibytes * gibibyte, most * 50), most) * 1.02;
}

std::string stage_memory(const Plan& plan, int first, int last, const MemoryFit& fit) {
  const std::int64_t total = plan.stages[static_cast<std::size_t>(first)].memory.device();
  const double axis = axis_of(plan, fit);
  const double limit = std::min(1.0, fit.gibibytes * gibibyte / axis);
  const std::string name = (first == last ? "stage " : "stages ") + span_text(first, last);
  const bool over = static_cast<double>(total) > fit.gibibytes * gibibyte;
  return "<div class=\"held\"><div class=\"of\"><b>" + name + "</b><span>" + format_bytes(total) +
         (over ? ", over the limit" : "") + "</span></div>\n<div class=\"segments\">" +
         segments(plan.stages[static_cast<std::size_t>(first)].memory) +
         "</div>\n<div class=\"scale\" role=\"img\" aria-label=\"" + name + ": " +
         format_bytes(total) + " of " + printed("%.4g", fit.gibibytes) + " GiB\"><i class=\"part" +
         (over ? " over" : "") +
         "\" style=\"width:" + css_percent(static_cast<double>(total) / axis) +
         "\"></i><i class=\"limit\" style=\"left:" + css_percent(limit) + "\"></i></div></div>\n";
}

std::string bars(const Plan& plan, const MemoryFit& fit) {
  const auto figures = [&plan](int stage) {
    std::vector<std::int64_t> values;
    for (const auto& row : memory_rows(plan.stages[static_cast<std::size_t>(stage)].memory)) {
      values.push_back(row.second);
    }
    return values;
  };
  std::string text;
  for (int first = 0; first < plan.map.stages;) {
    int last = first;
    while (last + 1 < plan.map.stages && figures(last + 1) == figures(first)) ++last;
    text += stage_memory(plan, first, last, fit);
    first = last + 1;
  }
  return text;
}

std::string legend_of(const Plan& plan) {
  std::string text = "<ul class=\"legend\">";
  int category = 0;
  for (const auto& [name, bytes] : memory_rows(plan.stages.front().memory)) {
    text +=
        "<li><i class=\"c" + std::to_string(category++) + "\"></i>" + std::string(name) + "</li>";
  }
  return text + "</ul>\n";
}

std::string models_table(const PrintInput& input) {
  const std::vector<MemoryModelRows> models = memory_models(input);
  if (models.empty()) return "";
  std::string text = "<table>" + head_row({"published model", "of", "numbers"}) + "<tbody>\n";
  for (const MemoryModelRows& model : models) {
    text += "<tr>" + cell(model.name) + cell(model.about) + cell(numbers_text(model)) + "</tr>\n";
  }
  return "<details><summary>Published memory models</summary>\n" +
         scroll_region("Published memory models", text + "</tbody></table>\n") + "</details>\n";
}

}  // namespace

std::string memory_html(const PrintInput& input) {
  const MemoryFit fit = memory_fit(input);
  return "<section id=\"memory\">\n<h2>Memory</h2>\n<p>Of one rank of each stage: <b class=\"" +
         std::string(fit.fits() ? "fits" : "over") + "\">" + escaped(fit_text(fit)) +
         "</b>. The wide bars are shares of the rank's memory, with segments no narrower than "
         "their figures (B, K, M, G are bytes, KiB, MiB, GiB); the thin bars below them are to "
         "scale, with a line at " +
         printed("%.4g", fit.gibibytes) + " GiB.</p>\n" + legend_of(input.plan) +
         bars(input.plan, fit) + models_table(input) + "</section>\n";
}

std::string recompute_html(const PrintInput& input) {
  const RecomputeTable table = recompute_table(input);
  if (table.rows.empty()) return "";
  std::string text = "<table>" +
                     head_row({"form", "#a layer", "#saves", "to make it again", "#a rank",
                               "#saves", "in a step"}) +
                     "<tbody>\n";
  for (const RecomputeTable::Row& row : table.rows) {
    const bool used = row[0].starts_with('*');
    text += "<tr>" + cell(row[0].substr(2) + (used ? " (in use)" : "")) + cell(row[1], "n") +
            cell(row[2], "n") + cell(row[3]) + cell(row[4], "n") + cell(row[5], "n") +
            cell(row[6]) + "</tr>\n";
  }
  std::string note = "Memory of activations if every layer";
  if (input.plan.map.stages > 1) note += " of stage " + std::to_string(table.stage);
  note += " had the same form. In use: " + table.in_use;
  if (!table.in_use_by_more.empty()) {
    note += "; by micro-batches that keep more: " + table.in_use_by_more;
  }
  if (!table.on_host.empty()) note += ". On the host: " + table.on_host;
  return "<section id=\"recompute\">\n<h2>Recomputation</h2>\n<p>" + escaped(note) + ".</p>\n" +
         scroll_region("Recomputation", text + "</tbody></table>\n") + "</section>\n";
}

}  // namespace trainctl
