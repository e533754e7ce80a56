#include "run/records/step_records.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>
#include <utility>

#include "base/units.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

struct Pages {
  std::int64_t all = 0;
  std::int64_t resident = 0;
};

// statm is a short file: it is read after each step.
Pages pages_now() {
  std::ifstream file("/proc/self/statm");
  Pages pages;
  return file >> pages.all >> pages.resident ? pages : Pages{};
}

}  // namespace

std::optional<std::int64_t> bytes_in(const std::filesystem::path& file, const std::string& key) {
  std::ifstream lines(file);
  std::string found;
  while (lines >> found) {
    std::int64_t kibibytes = 0;
    if (found == key && lines >> kibibytes) return kibibytes * 1024;
    std::getline(lines, found);
  }
  return std::nullopt;
}

// getrusage would also count the memory of this process before exec.
std::int64_t peak_resident_bytes() { return bytes_in("/proc/self/status", "VmHWM:").value_or(0); }

std::int64_t resident_bytes() { return pages_now().resident * ::sysconf(_SC_PAGESIZE); }

std::int64_t virtual_bytes() { return pages_now().all * ::sysconf(_SC_PAGESIZE); }

std::int64_t available_bytes() { return bytes_in("/proc/meminfo", "MemAvailable:").value_or(0); }

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

StepRecords::StepRecords(const std::filesystem::path& directory, ProductPeak peak,
                         const Fence& fence)
    : path_(directory / "metrics.jsonl"), fence_(fence), peak_(std::move(peak)) {
  metrics_.emplace(path_, fence_);
}

void StepRecords::add_val_loss(std::int64_t step, double val_loss) {
  trainctl::add_val_loss(path_, step, val_loss, fence_);
  metrics_.emplace(path_, fence_);  // add_val_loss has replaced the file
}

StepNotes StepRecords::write(const StepReport& report, const Trace& trace,
                             std::span<const TimerRange> timers) {
  StepNotes notes{.time = seconds_since_1970(),
                  .mfu = peak_.mfu(report.flops_per_second, report.step),
                  .memory = resident_bytes(),
                  .ledger = own_ledger(trace, trace.completed_steps()),
                  .timers = timers};
  if (peak_.source() != told_source_) {
    told_source_ = peak_.source();
    notes.peak_flops = peak_.flops();
    notes.peak_source = told_source_;
  }
  metrics_->write(report, notes);
  return notes;
}

void StepRecords::write_end(const std::string& end, const std::string& reason) {
  metrics_->write_end(end, reason, seconds_since_1970());
}

TimerReports::TimerReports(const Config& config)
    : on_(config.hooks.timers),
      every_(config.log.every),
      sums_(static_cast<int>(config.log.timer_level)) {}

std::vector<TimerRange> TimerReports::after_step(const Trace& trace, std::int64_t step, bool last,
                                                 Group& everyone) {
  if (!on_) return {};
  sums_.add(trace);
  if (!last && step % every_ != 0) return {};
  first_ = step - sums_.steps() + 1;
  last_ = step;
  return sums_.take(everyone);
}

std::vector<std::string> TimerReports::lines(const std::vector<TimerRange>& timers) const {
  if (timers.empty()) return {};
  const std::string last = std::to_string(last_);
  const std::string steps =
      first_ == last_ ? "step " + last : "steps " + std::to_string(first_) + " to " + last;
  std::vector<std::string> lines{"seconds per step in " + steps + ", least and most of all ranks"};
  for (const TimerRange& timer : timers) {
    lines.push_back("  " + padded(std::string(timer.name), 27) +
                    padded_left(format_seconds(timer.least), 10) + " .. " +
                    format_seconds(timer.most));
  }
  return lines;
}

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
    if (nothing) continue;  // the layout has no such communication
    add(std::string(entry.text), plan.*entry.seconds, mean.*entry.seconds,
        range_of(measured, entry));
  }
  add("together", plan.total(), mean.total(), "");
  return lines;
}

std::string differences_text(const Ledger& planned, const Ledger& measured) {
  constexpr std::size_t most = 3;
  constexpr double least = 0.01;  // share of the step
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
