#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

std::string header_html(const PrintInput& input, const PageHead& head) {
  return "<p>Plan of <b>" + escaped(head.file) + "</b> for <b>" +
         grouped_count(input.plan.mesh.world_size(), "rank") + "</b>, hash <code>" +
         hex_text(input.plan.hash) + "</code></p>\n" + command_html(head);
}

}  // namespace

std::string command_html(const PageHead& head) {
  std::string text;
  if (!head.command.empty()) text += "<pre>" + escaped(head.command) + "</pre>\n";
  if (head.sets.empty()) return text;
  text += "<ul class=\"sets\" aria-label=\"values set on the command line\">";
  for (const std::string& set : head.sets) text += "<li><code>" + escaped(set) + "</code></li>";
  return text + "</ul>\n";
}

std::string cell(const std::string& text, std::string_view css) {
  const std::string of_class = css.empty() ? "" : " class=\"" + std::string(css) + "\"";
  return "<td" + of_class + ">" + escaped(text) + "</td>";
}

std::string head_row(const std::vector<std::string>& columns) {
  std::string text = "<thead><tr>";
  for (const std::string& column : columns) {
    const bool number = column.starts_with('#');
    text += std::string("<th scope=\"col\"") + (number ? " class=\"n\">" : ">") +
            escaped(std::string_view(column).substr(number ? 1 : 0)) + "</th>";
  }
  return text + "</tr></thead>\n";
}

std::string css_percent(double share) {
  std::string text = printed("%.3f", 100 * share);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text + "%";
}

std::string print_html(const PrintInput& input, const PageHead& head) {
  check_rank(input);
  const Plan& plan = input.plan;
  const Timeline timeline = make_timeline(plan);
  PageContent page;
  page.title = head.title;
  page.kind = "plan";
  page.header = header_html(input, head);
  page.body = facts_html(input) + sizes_html(plan) + stages_html(plan) +
              schedule_html(plan, timeline) + memory_html(input) + recompute_html(input) +
              communication_html(plan) + mesh_html(input) + rates_html(input) +
              parameters_html(input);
  page.style = plan_style();
  page.script = std::string(schedule_script()).append(plan_script());
  return html_page(page);
}

}  // namespace trainctl
