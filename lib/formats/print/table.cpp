#include "formats/print/table_parts.h"
#include "formats/print/text.h"

namespace trainctl {

std::string labelled(const std::string& label, const std::string& text) {
  return "  " + padded(label, 13) + " " + text + "\n";
}

std::string rates_section(const std::string& title, const std::vector<RatePoint>& points) {
  std::string text = title + "\n";
  for (const RatePoint& point : points) {
    text += labelled("step " + std::to_string(point.step),
                     "lr " + printed("%.4g", point.learning_rate) + ", weight decay " +
                         printed("%.4g", point.weight_decay));
  }
  return text;
}

std::string print_table(const PrintInput& input) {
  check_rank(input);
  const Plan& plan = input.plan;
  const Timeline timeline = make_timeline(plan);
  std::string text = mesh_section(plan) + "\n" + kinds_section(plan) + search_section(input) +
                     groups_section(input) + "\n" + stages_section(plan, timeline) + "\n" +
                     schedule_section(input, timeline) + "\n" + parameters_section(input) + "\n" +
                     optimizer_section(input) + memory_section(input) + "\n" +
                     (input.config == nullptr ? "" : recompute_section(input) + "\n") +
                     communication_section(input) + "\n" + work_section(plan) + "\n" +
                     time_section(plan, input.config) + ramp_section(plan);
  if (!plan.rates.empty()) {
    const std::string title = "learning rate  (" + grouped_count(plan.steps, "step") + ")";
    text += "\n" + rates_section(title, plan.rates);
  }
  if (!input.lr_at.empty()) text += "\n" + rates_section("asked for", rates_asked(input));
  return text + "\nplan hash " + hex_text(plan.hash) + "\n";
}

}  // namespace trainctl
