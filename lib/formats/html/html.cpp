#include "formats/html/html_parts.h"

#include <algorithm>

#include "base/units.h"
#include "config/schema/words.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

std::string fact(const std::string& name, const std::string& value, const std::string& more) {
  return "<div><span>" + escaped(name) + "</span><b>" + escaped(value) + "</b><small>" +
         escaped(more) + "</small></div>\n";
}

std::string facts_html(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  std::string factors;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
    factors += (factors.empty() ? "" : " × ") + std::string(name_of(axis)) + " " +
               std::to_string(mesh.size(axis));
  }
  std::string experts;
  if (mesh.ep > 1 || mesh.etp != mesh.tp) {
    experts = ", experts: etp " + std::to_string(mesh.etp) + " × ep " + std::to_string(mesh.ep) +
              " × edp " + std::to_string(mesh.edp);
  }
  std::int64_t fullest = 0;
  std::int64_t parameters = 0;
  for (const StagePlan& stage : plan.stages) {
    fullest = std::max(fullest, stage.memory.total());
    for (const ParamSpec& row : stage.parameters) {
      if (!row.second_home) parameters += row.global_shape.numel();
    }
  }
  const std::int64_t sequences = plan.micro_batch_size * plan.microbatches * mesh.dp;
  return "<div class=\"facts\">\n" +
         fact("World", grouped_count(mesh.world_size(), "rank"), factors + experts) +
         fact("Parameters", format_count(static_cast<double>(parameters)),
              std::string(word_of(plan.model.family)) + ", " +
                  grouped_count(plan.model.layers, "layer") + ", " +
                  std::string(name_of(plan.compute))) +
         fact("Step", grouped_count(sequences, "sequence"),
              grouped_count(plan.microbatches, "micro-batch") + " of " +
                  std::to_string(plan.micro_batch_size) + " per rank, " +
                  format_count(static_cast<double>(plan.tokens_per_step())) + " tokens") +
         fact("Schedule", plan.schedule, "bubble " + percent(plan.bubble_fraction)) +
         fact("Memory", format_bytes(fullest),
              plan.map.stages > 1 ? "per rank of the fullest stage" : "per rank") +
         fact("Work", operations_text(plan.flops.total()), "per step over all ranks") +
         (plan.time ? fact("Time", format_seconds(plan.time->step()),
                           "per step at the rates of section cluster")
                    : "") +
         "</div>\n";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += letter;
    }
  }
  return safe;
}

std::string svg_number(double value) {
  std::string text = printed("%.2f", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string svg_rect(const SvgBox& box, const std::string& css_class, const std::string& title) {
  std::string text = "<rect class=\"" + css_class + "\" x=\"" + svg_number(box.x) + "\" y=\"" +
                     svg_number(box.y) + "\" width=\"" + svg_number(box.width) + "\" height=\"" +
                     svg_number(box.height) + "\" rx=\"2.5\">";
  if (!title.empty()) text += "<title>" + escaped(title) + "</title>";
  return text + "</rect>\n";
}

std::string svg_text(double x, double y, const std::string& anchor, const std::string& text,
                     const std::string& css_class) {
  return "<text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" text-anchor=\"" + anchor +
         "\"" + (css_class.empty() ? "" : " class=\"" + css_class + "\"") + ">" + escaped(text) +
         "</text>\n";
}

std::string print_html(const PrintInput& input, const std::string& title) {
  check_rank(input);
  const Plan& plan = input.plan;
  const Timeline timeline = make_timeline(plan);
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      escaped(title) + " - plan</title>\n<style>";
  page += html_style();
  page += "</style>\n</head>\n<body>\n<main>\n<header><h1>" + escaped(title) + "</h1><code>plan " +
          hex_text(plan.hash) +
          "</code><button id=\"theme\" class=\"push\" type=\"button\">Light / dark</button>"
          "</header>\n";
  page += facts_html(plan) + mesh_html(input) + stages_html(plan) + schedule_html(plan, timeline) +
          memory_html(input) + communication_html(plan) + rates_html(input) +
          parameters_html(input);
  page += "</main>\n<script>";
  page += html_script();
  return page + "</script>\n</body>\n</html>\n";
}

}  // namespace trainctl
