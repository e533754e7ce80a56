#include <algorithm>

#include "base/units.h"
#include "formats/print/ramp_rows.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"

namespace trainctl {

std::vector<RampRow> ramp_rows(const Plan& plan) {
  std::vector<RampRow> rows;
  for (std::size_t i = 0; i < plan.ramp.size(); ++i) {
    const RampPart& part = plan.ramp[i];
    const bool last = i + 1 == plan.ramp.size();
    if (plan.steps > 0 && part.first_step >= plan.steps) break;  // the run ends before
    std::int64_t end = last ? plan.steps : plan.ramp[i + 1].first_step;
    if (plan.steps > 0) end = std::min(end, plan.steps);
    const Plan& with = plan.after(part.first_step);
    RampRow& row = rows.emplace_back();
    row.first_step = part.first_step + 1;
    row.steps = std::max<std::int64_t>(0, end - part.first_step);
    row.batch = part.batch;
    row.microbatches = with.microbatches;
    row.tokens = with.tokens_per_step();
    if (with.time) row.step_seconds = with.time->step();
  }
  return rows;
}

std::string ramp_section(const Plan& plan) {
  if (plan.ramp.size() == 1) return "";
  constexpr std::size_t most = 24;
  const auto line = [](const std::string& steps, const std::string& batch,
                       const std::string& microbatches, const std::string& tokens,
                       const std::string& time) {
    return "  " + padded(steps, 20) + padded_left(batch, 10) + padded_left(microbatches, 16) +
           padded_left(tokens, 16) + (time.empty() ? "" : padded_left(time, 12)) + "\n";
  };
  std::string text = "\nbatch-size ramp\n";
  text += line("steps", "batch", "micro-batches", "tokens a step", plan.time ? "a step" : "");
  const std::vector<RampRow> rows = ramp_rows(plan);
  std::int64_t tokens = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const RampRow& row = rows[i];
    tokens += row.steps * row.tokens;
    seconds += static_cast<double>(row.steps) * row.step_seconds.value_or(0);
    const bool hidden = rows.size() > most && i >= most / 2 && i + most / 2 < rows.size();
    if (hidden && i == most / 2) text += "  ...\n";
    if (hidden) continue;
    const std::string begin = format_grouped(row.first_step);
    const std::string end = ".." + format_grouped(row.first_step + row.steps - 1);
    text +=
        line(row.steps == 0 ? "from " + begin : begin + (row.steps == 1 ? "" : end),
             format_grouped(row.batch), format_grouped(row.microbatches),
             format_grouped(row.tokens), row.step_seconds ? format_seconds(*row.step_seconds) : "");
  }
  if (plan.steps == 0) return text;
  return text + labelled("in all", grouped_count(plan.steps, "step") + " with " +
                                       grouped_count(tokens, "token") +
                                       (seconds > 0 ? ", " + format_seconds(seconds) : ""));
}

}  // namespace trainctl
