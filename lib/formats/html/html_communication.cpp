#include <algorithm>
#include <optional>

#include "base/units.h"
#include "formats/html/html_parts.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

struct Sum {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

using Uses = std::vector<CollectiveUse>;

/// Of one purpose, or of all.
Sum sum_of(const Uses& uses, std::optional<TrafficPurpose> purpose) {
  Sum sum;
  for (const CollectiveUse& use : uses) {
    if (purpose && use.purpose != *purpose) continue;
    sum.count += use.count;
    sum.bytes += use.bytes;
  }
  return sum;
}

std::string sum_cell(const Sum& sum) {
  if (sum.count == 0) return cell("-", "n");
  return "<td class=\"n\">" + format_bytes(sum.bytes) + "<small>" +
         grouped_count(sum.count, "call") + "</small></td>";
}

bool same_uses(const Uses& left, const Uses& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const CollectiveUse& a, const CollectiveUse& b) {
                      return a.operation == b.operation && a.cargo == b.cargo &&
                             a.purpose == b.purpose && a.group == b.group && a.count == b.count &&
                             a.bytes == b.bytes;
                    });
}

/// Stages that do the same.
struct CallSpan {
  int first = 0;
  int last = 0;
  const Uses* uses = nullptr;
  std::string name() const {
    return (first == last ? "stage " : "stages ") + span_text(first, last);
  }
};

std::vector<CallSpan> spans_of(const Plan& plan) {
  std::vector<CallSpan> spans;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const Uses& uses = plan.stages[static_cast<std::size_t>(stage)].communication;
    if (!spans.empty() && same_uses(*spans.back().uses, uses)) {
      spans.back().last = stage;
    } else {
      spans.push_back({stage, stage, &uses});
    }
  }
  return spans;
}

std::string totals_table(const std::vector<CallSpan>& spans,
                         const std::vector<TrafficPurpose>& used) {
  std::vector<std::string> columns{"kind"};
  for (const CallSpan& span : spans) columns.push_back("#" + span.name());
  std::string text = "<table>" + head_row(columns) + "<tbody>\n";
  for (const TrafficPurpose purpose : used) {
    text += "<tr>" + cell(std::string(purpose_text(purpose)));
    for (const CallSpan& span : spans) text += sum_cell(sum_of(*span.uses, purpose));
    text += "</tr>\n";
  }
  text += "<tr class=\"sum\">" + cell("all");
  for (const CallSpan& span : spans) text += sum_cell(sum_of(*span.uses, std::nullopt));
  return scroll_region("Totals of communication", text + "</tr>\n</tbody></table>\n");
}

std::string rows_of(const CallSpan& span) {
  std::string text = "<table>" +
                     head_row({"operation", "kind", "group", "#ranks", "#calls", "#payload"}) +
                     "<tbody>\n";
  for (const CollectiveUse& use : *span.uses) {
    text += "<tr>" + cell(use.name()) + cell(std::string(purpose_text(use.purpose))) +
            cell(name_of(use.group)) + cell(format_grouped(use.ranks), "n") +
            cell(format_grouped(use.count), "n") + cell(format_bytes(use.bytes), "n") + "</tr>\n";
  }
  const auto count = static_cast<std::int64_t>(span.uses->size());
  return "<details><summary>" + span.name() + ": " + grouped_count(count, "row") + "</summary>\n" +
         scroll_region("Communication of " + span.name(), text + "</tbody></table>\n") +
         "</details>\n";
}

}  // namespace

std::string communication_html(const Plan& plan) {
  const std::vector<CallSpan> spans = spans_of(plan);
  std::vector<TrafficPurpose> used;
  for (const TrafficPurpose purpose : all_purposes) {
    const bool any = std::any_of(spans.begin(), spans.end(), [purpose](const CallSpan& span) {
      return sum_of(*span.uses, purpose).count > 0;
    });
    if (any) used.push_back(purpose);
  }
  std::string text =
      "<section id=\"communication\">\n<h2>Communication</h2>\n<p>Of one rank in one step. ";
  if (used.empty()) return text + "None: this plan has one rank.</p>\n</section>\n";
  text +=
      "The payload is that of whole tensors: the result of an all-gather, the input of a "
      "reduce-scatter.</p>\n" +
      totals_table(spans, used);
  for (const CallSpan& span : spans) {
    if (!span.uses->empty()) text += rows_of(span);
  }
  return text + "</section>\n";
}

}  // namespace trainctl
