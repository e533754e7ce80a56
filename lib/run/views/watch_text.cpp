#include "run/views/watch_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/units.h"
#include "checkpoint/folder.h"
#include "formats/print/text.h"
#include "plan/cost/ledger.h"

namespace trainctl {

namespace {

constexpr std::array<const char*, 9> eighths{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr int scale_width = 9;

/// Means over equal shares of the values; NaN where a share has no finite value.
std::vector<double> columns_of(const std::vector<double>& values, int most) {
  const auto count = std::min(values.size(), static_cast<std::size_t>(std::max(1, most)));
  std::vector<double> columns;
  for (std::size_t column = 0; column < count; ++column) {
    double sum = 0;
    int finite = 0;
    const std::size_t end = values.size() * (column + 1) / count;
    for (std::size_t i = values.size() * column / count; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++finite;
    }
    columns.push_back(finite > 0 ? sum / finite : std::numeric_limits<double>::quiet_NaN());
  }
  return columns;
}

/// The character of a bar's cell in line `line` from the bottom; the bar is `level` eighths of a
/// line high.
const char* cell_of(int level, int line, bool utf8) {
  const int filled = std::clamp(level - 8 * line, 0, 8);
  if (utf8) return eighths[static_cast<std::size_t>(filled)];
  return filled >= 4 || (line == 0 && level > 0) ? "*" : " ";
}

}  // namespace

std::vector<std::string> text_plot(const std::vector<double>& values, const WatchSpace& space) {
  const std::vector<double> columns = columns_of(values, space.width - scale_width);
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (const double value : columns) {
    if (!std::isfinite(value)) continue;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  std::vector<std::string> lines;
  if (most < least) return lines;
  const double range = most > least ? most - least : 1;
  for (int line = space.height - 1; line >= 0; --line) {
    std::string label;
    if (line == 0) label = printed("%.4g", least);
    if (line == space.height - 1) label = printed("%.4g", most);
    std::string text = padded_left(label, scale_width - 1) + " ";
    for (const double value : columns) {
      const double share = std::isfinite(value) ? (value - least) / range : 0;
      const int level =
          std::isfinite(value) ? 1 + static_cast<int>(share * (8 * space.height - 1)) : 0;
      text += cell_of(level, line, space.utf8);
    }
    lines.push_back(text);
  }
  return lines;
}

namespace {

constexpr std::size_t label_width = 12;

std::string watch_row(const std::string& label, const std::string& text) {
  return padded(label, label_width) + text;
}

std::string number(const char* format, double value) {
  return std::isfinite(value) ? printed(format, value) : "-";
}

/// The time until the last step; empty for a run that has ended or hangs.
std::string eta_text(const RunFiles& run, double now) {
  if (state_of(run, now).kind != RunState::Kind::running) return "";
  const std::int64_t left = run.steps - run.last_step();
  const double each = seconds_per_step(run);
  return left > 0 && each > 0 ? format_seconds(each * static_cast<double>(left)) : "";
}

std::string step_text(const RunFiles& run) {
  return std::to_string(run.last_step()) + (run.steps > 0 ? "/" + std::to_string(run.steps) : "");
}

std::string colored(const std::string& text, RunState::Kind kind, bool color) {
  using Kind = RunState::Kind;
  if (!color) return text;
  const bool good = kind == Kind::running || kind == Kind::finished;
  return (good ? "\x1b[1;32m" : "\x1b[1;33m") + text + "\x1b[0m";
}

std::string head_line(const RunFiles& run, const WatchSpace& space, double now) {
  const RunState state = state_of(run, now);
  const std::string name = run.directory.string();
  const auto room = static_cast<std::size_t>(std::max(8, space.width));
  const std::string shown =
      name.size() + 2 + state.text.size() <= room ? name : run.name();  // the path may be too long
  return shown + "  " + colored(state.text, state.kind, space.color);
}

std::string progress_line(const RunFiles& run, int width, double now) {
  std::string text = "step " + step_text(run);
  if (run.steps <= 0) return text;
  const double share =
      std::clamp(static_cast<double>(run.last_step()) / static_cast<double>(run.steps), 0.0, 1.0);
  const std::string eta = eta_text(run, now);
  const std::string behind = "  " + percent(share) + (eta.empty() ? "" : "  ETA " + eta);
  const int room = std::clamp(width - static_cast<int>(text.size() + behind.size()) - 4, 0, 50);
  if (room < 8) return text + behind;
  const auto full = static_cast<std::size_t>(share * room);
  return text + "  [" + std::string(full, '#') +
         std::string(static_cast<std::size_t>(room) - full, '.') + "]" + behind;
}

std::string loss_line(const RunFiles& run) {
  std::string text = number("%.4f", run.last("loss"));
  const auto found = run.series.find("loss");
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; found != run.series.end() && i < found->second.size(); ++i) {
    if (!(found->second[i] < least)) continue;
    least = found->second[i];
    best = i;
  }
  if (std::isfinite(least)) {
    text += ", least " + printed("%.4f", least) + " at step " + std::to_string(run.at_step[best]);
  }
  const double validation = run.last("val_loss");
  if (std::isfinite(validation)) text += ", validation " + printed("%.4f", validation);
  if (run.skipped > 0) text += ", " + grouped_count(run.skipped, "update") + " skipped";
  return watch_row("loss", text);
}

std::string speed_line(const RunFiles& run) {
  std::string text = format_count(std::max(0.0, run.last("tokens_per_second"))) + " tokens/s, " +
                     format_seconds(std::max(0.0, run.last("step_seconds"))) + " a step";
  const double mfu = run.last("mfu");
  if (std::isfinite(mfu)) text += ", MFU " + printed("%.0f %%", 100 * mfu);
  return watch_row("throughput", text);
}

std::string peak_line(const RunFiles& run) {
  return watch_row("MFU is of", format_count(run.mfu_flops) + " FLOP/s: " + run.mfu_source);
}

std::string rate_line(const RunFiles& run) {
  std::string text =
      number("%.3e", run.last("lr")) + ", gradient norm " + number("%.4g", run.last("grad_norm"));
  const double scale = run.last("loss_scale");
  if (std::isfinite(scale)) text += ", loss scale " + printed("%.6g", scale);
  return watch_row("rate", text);
}

/// The entries of the last step's ledger, the largest first, on one or more lines.
std::vector<std::string> ledger_lines(const RunFiles& run, int width) {
  std::vector<std::pair<double, std::string>> parts;
  double total = 0;
  for (const LedgerEntry& entry : ledger_entries) {
    const double seconds = std::max(0.0, run.last("ledger." + std::string(entry.key)));
    if (!(seconds > 0)) continue;
    total += seconds;
    parts.emplace_back(seconds, std::string(entry.text));
  }
  std::sort(parts.begin(), parts.end(),
            [](const auto& left, const auto& right) { return left.first > right.first; });
  std::vector<std::string> lines;
  for (const auto& [seconds, text] : parts) {
    const std::string part = text + " " + percent(seconds / total);
    const bool fits =
        !lines.empty() && static_cast<int>(lines.back().size() + part.size()) + 2 <= width;
    if (fits) {
      lines.back() += ", " + part;
    } else {
      lines.push_back(watch_row(lines.empty() ? "a step" : "", part));
    }
  }
  return lines;
}

std::string checkpoint_line(const RunFiles& run, double now) {
  const auto all = CheckpointFolder(run.directory).complete();
  if (all.empty()) return watch_row("checkpoint", "none yet");
  std::error_code failure;
  const auto written = std::filesystem::last_write_time(all.front().path, failure);
  std::string text = "step " + std::to_string(all.front().step);
  if (failure) return watch_row("checkpoint", text);
  const auto on_system_clock = std::chrono::file_clock::to_sys(written);
  const double at = std::chrono::duration<double>(on_system_clock.time_since_epoch()).count();
  return watch_row("checkpoint", text + ", " + format_seconds(std::max(0.0, now - at)) + " ago");
}

}  // namespace

std::vector<std::string> watch_lines(const RunFiles& run, const WatchSpace& space, double now) {
  std::vector<std::string> lines{head_line(run, space, now), progress_line(run, space.width, now)};
  if (run.at_step.empty()) return lines;
  std::vector<std::string> below{rate_line(run), speed_line(run)};
  if (!run.mfu_source.empty()) below.push_back(peak_line(run));
  const double memory = run.last("memory");
  if (memory > 0) {
    below.push_back(watch_row(
        "memory", format_bytes(static_cast<std::int64_t>(memory)) + " of rank 0's process"));
  }
  for (const std::string& line : ledger_lines(run, space.width)) below.push_back(line);
  below.push_back(checkpoint_line(run, now));
  lines.push_back(loss_line(run));
  const int room = space.height - static_cast<int>(lines.size() + below.size());
  const auto loss = run.series.find("loss");
  if (loss != run.series.end() && loss->second.size() > 1) {
    const int height = std::clamp(room, 3, 10);
    for (const std::string& line : text_plot(loss->second, {space.width, height, space.utf8})) {
      lines.push_back(line);
    }
  }
  lines.insert(lines.end(), below.begin(), below.end());
  return lines;
}

std::string watch_line(const RunFiles& run, double now) {
  std::string text = state_of(run, now).text;
  if (run.at_step.empty()) return text;
  text += "  step " + step_text(run) + "  loss " + number("%.4f", run.last("loss"));
  const double validation = run.last("val_loss");
  if (std::isfinite(validation)) text += "  val " + printed("%.4f", validation);
  text += "  norm " + number("%.3g", run.last("grad_norm")) + "  lr " +
          number("%.2e", run.last("lr")) + "  " +
          format_count(std::max(0.0, run.last("tokens_per_second"))) + " tok/s";
  if (run.last("mfu") > 0) text += "  MFU " + printed("%.0f %%", 100 * run.last("mfu"));
  const std::string eta = eta_text(run, now);
  return text + (eta.empty() ? "" : "  ETA " + eta);
}

}  // namespace trainctl
