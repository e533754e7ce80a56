#include "run/records/ledger_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

std::string line_of(const std::string& name, const std::string& planned,
                    const std::string& measured, const std::string& ranks) {
  return "  " + padded(name, 22) + padded_left(planned, 10) + padded_left(measured, 14) +
         (ranks.empty() ? "" : "   " + ranks);
}

std::string range_of(const MeasuredLedgers& measured, const LedgerEntry& entry) {
  if (measured.by_rank.size() == 1) return "";
  double least = measured.by_rank.front().*entry.seconds;
  double most = least;
  for (const Ledger& ledger : measured.by_rank) {
    least = std::min(least, ledger.*entry.seconds);
    most = std::max(most, ledger.*entry.seconds);
  }
  return format_seconds(std::max(0.0, least)) + " .. " + format_seconds(std::max(0.0, most));
}

}  // namespace

void add_ledger(const char* key, const Ledger& ledger, JsonText& json) {
  json.key(key).open_object(JsonText::Form::one_line);
  for (const LedgerEntry& entry : ledger_entries) json.member(entry.key, ledger.*entry.seconds);
  json.close();
}

Ledger mean_of(const std::vector<Ledger>& ledgers) {
  Ledger mean;
  for (const Ledger& ledger : ledgers) {
    for (const LedgerEntry& entry : ledger_entries) {
      mean.*entry.seconds += ledger.*entry.seconds / static_cast<double>(ledgers.size());
    }
  }
  return mean;
}

std::vector<std::string> ledger_table(const std::vector<Ledger>& planned,
                                      const MeasuredLedgers& measured, std::int64_t step) {
  const bool one = measured.by_rank.size() == 1;
  const Ledger plan = mean_of(planned);
  const Ledger mean = mean_of(measured.by_rank);
  std::vector<std::string> lines;
  lines.push_back(
      line_of("time of step " + std::to_string(step), "planned", "measured", one ? "" : "by rank"));
  const auto add = [&](const std::string& name, double left, double right,
                       const std::string& ranks) {
    lines.push_back(line_of(name, format_seconds(std::max(0.0, left)),
                            format_seconds(std::max(0.0, right)), ranks));
  };
  for (const LedgerEntry& entry : ledger_entries) {
    const bool nothing = plan.*entry.seconds <= 0 && mean.*entry.seconds <= 0;
    if (nothing) continue;  // this layout has no such communication
    add(std::string(entry.text), plan.*entry.seconds, mean.*entry.seconds,
        range_of(measured, entry));
  }
  add("together", plan.total(), mean.total(), "");
  return lines;
}

std::string differences_text(const Ledger& planned, const Ledger& measured) {
  constexpr std::size_t most = 3;
  constexpr double least = 0.01;  // of the step
  const double step = measured.total();
  std::vector<std::pair<double, std::string>> kinds;
  for (const LedgerEntry& entry : ledger_entries) {
    kinds.emplace_back(measured.*entry.seconds - planned.*entry.seconds, entry.text);
  }
  std::ranges::stable_sort(
      kinds, [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  std::string text =
      "step " + format_seconds(step) + ", planned " + format_seconds(planned.total());
  if (step > 0) text += " (" + printed("%+.0f", 100 * (planned.total() / step - 1)) + " %)";
  std::string list;
  for (std::size_t i = 0; i < most; ++i) {
    const auto& [seconds, words] = kinds[i];
    if (std::abs(seconds) < least * step) break;
    list += (list.empty() ? "; " : ", ") + words + (seconds > 0 ? " +" : " -") +
            format_seconds(std::abs(seconds));
  }
  return text + list;
}

}  // namespace trainctl
