#include <algorithm>

#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/json_text.h"
#include "formats/print/text.h"
#include "plan/rules/learning_rate.h"

namespace trainctl {

namespace {

/// What a stage's row says of its layout: "tp cuts dim 0".
std::string cuts_text(const ParamSpec& row) {
  std::string text;
  for (const auto& [name, dim] : splits_of(row)) {
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
            cell(cuts_text(row)) + cell(owners) + cell(std::to_string(buckets[i]), "n") +
            cell(init_text(row)) + cell(row.decay ? "yes" : "no") + "</tr>\n";
  }
  return text;
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
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  PrintInput asked = input;
  asked.lr_at = std::move(steps);
  return rates_asked(asked);
}

}  // namespace

std::string rates_html(const PrintInput& input) {
  const std::vector<RatePoint> points = rates_over_run(input);
  if (points.empty()) return "";
  JsonText json;
  json.open_array(JsonText::Form::one_line);
  for (const RatePoint& point : points) {
    json.open_array(JsonText::Form::one_line);
    json.value(point.step);
    json.value(point.learning_rate);
    json.close();
  }
  json.close();
  const std::string decay = printed("%.4g", points.front().weight_decay);
  const std::string last = printed("%.4g", points.back().weight_decay);
  return "<section id=\"rates\">\n<h2>Learning rate</h2>\n<p>" +
         escaped("Over " + grouped_count(input.plan.steps, "step") + "; weight decay " + decay +
                 (decay == last ? "" : " to " + last) + ".") +
         "</p>\n" + page_data("rates-data", json.take()) + "</section>\n";
}

std::string parameters_html(const PrintInput& input) {
  const Plan& plan = input.plan;
  std::size_t count = 0;
  std::string rows;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    count += plan.stages[static_cast<std::size_t>(stage)].parameters.size();
    rows += parameter_rows(plan, stage);
  }
  const std::string table = "<table>" +
                            head_row({"#stage", "name", "whole", "of a rank", "layout",
                                      "gradient summed over", "#bucket", "starts as", "decays"}) +
                            "<tbody>\n" + rows + "</tbody></table>\n";
  return "<section id=\"parameters\">\n<h2>Parameters</h2>\n<details><summary>" +
         grouped_count(static_cast<std::int64_t>(count), "row") + "</summary>\n" +
         scroll_region("Parameters", table) + "</details>\n</section>\n";
}

}  // namespace trainctl
