#include "run/directory/metrics.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "base/log.h"
#include "base/whole_file.h"

namespace trainctl {

namespace {

constexpr const char* val_loss_key = ", \"val_loss\": ";
constexpr std::ptrdiff_t most_loads = 1024;  // numbers of a line
constexpr const char* after_val_loss = ", \"tokens_per_second\": ";

/// A double in the shortest digits that read back to the same one.
template <class Number>
void append(std::string& text, const char* key, Number value) {
  text += key;
  if constexpr (std::is_same_v<Number, double>) {
    if (!std::isfinite(value)) {
      text += "null";
      return;
    }
  }
  std::array<char, 40> digits{};
  text.append(digits.data(), std::to_chars(digits.data(), digits.end(), value).ptr);
}

/// In percent: of each expert of each layer, or if these are many the means over the layers.
void append_loads(const RouterReport& router, std::string& text) {
  const std::int64_t experts = router.experts;
  const std::int64_t layers = std::ssize(router.loads) / std::max<std::int64_t>(1, experts);
  const bool means = std::ssize(router.loads) > most_loads;
  text += ", \"loads\": [[";
  for (std::int64_t row = 0; row < (means ? 1 : layers); ++row) {
    if (row > 0) text += "], [";
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      double sum = 0;
      for (std::int64_t layer = row; layer < (means ? layers : row + 1); ++layer) {
        sum += double{router.loads[static_cast<std::size_t>(layer * experts + expert)]};
      }
      append(text, expert > 0 ? ", " : "",
             std::round(100 * sum / static_cast<double>(means ? layers : 1)));
    }
  }
  text += "]]";
}

double rounded(double value, double parts) { return std::round(value * parts) / parts; }

}  // namespace

void append_metrics(const StepReport& report, const StepNotes& notes, std::string& text) {
  append(text, "{\"step\": ", report.step);
  append(text, ", \"loss\": ", report.loss);
  append(text, ", \"grad_norm\": ", report.grad_norm);
  if (report.loss_scale) append(text, ", \"loss_scale\": ", *report.loss_scale);
  append(text, ", \"lr\": ", report.lr);
  append(text, ", \"tokens\": ", report.tokens);
  append(text, ", \"positions\": ", report.positions);
  append(text, ", \"labels\": ", report.labels);
  if (report.batch_size) append(text, ", \"batch_size\": ", *report.batch_size);
  if (report.router) {
    append(text, ", \"router\": {\"balance_loss\": ", report.router->balance_loss);
    append(text, ", \"z_loss\": ", report.router->z_loss);
    append(text, ", \"entropy\": ", report.router->entropy);
    append(text, ", \"load\": ", report.router->load);
    append(text, ", \"dropped\": ", report.router->dropped);
    append_loads(*report.router, text);
    text += "}";
  }
  if (report.skipped) text += ", \"skipped\": true";
  if (report.val_loss) append(text, val_loss_key, *report.val_loss);
  append(text, after_val_loss, report.tokens_per_second);
  append(text, ", \"step_seconds\": ", report.step_seconds);
  append(text, ", \"time\": ", rounded(notes.time, 1e3));
  append(text, ", \"mfu\": ", rounded(notes.mfu, 1e4));
  append(text, ", \"memory\": ", notes.memory);
  const char* before = ", \"ledger\": {\"";
  for (const LedgerEntry& entry : ledger_entries) {
    text.append(before).append(entry.key);
    append(text, "\": ", rounded(notes.ledger.*entry.seconds, 1e6));
    before = ", \"";
  }
  text += "}";
  before = ", \"timers\": {\"";
  for (const TimerRange& timer : notes.timers) {
    text.append(before).append(timer.name);
    append(text, "\": [", rounded(timer.least, 1e6));
    append(text, ", ", rounded(timer.most, 1e6));
    before = "], \"";
  }
  if (!notes.timers.empty()) text += "]}";
  if (!notes.peak_source.empty()) {
    append(text, ", \"mfu_peak\": {\"flops\": ", notes.peak_flops);
    text.append(", \"source\": \"").append(notes.peak_source).append("\"}");
  }
  text += "}\n";
}

MetricsFile::MetricsFile(const std::filesystem::path& path) : file_(File::open_to_append(path)) {
  lines_.reserve(1024);
}

void MetricsFile::write(const StepReport& report, const StepNotes& notes) {
  append_metrics(report, notes, lines_);
  try_to_write();
}

void MetricsFile::write_end(const std::string& end, const std::string& reason, double time) {
  const nlohmann::ordered_json line{{"end", end}, {"reason", reason}, {"time", rounded(time, 1e3)}};
  lines_ += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  try_to_write();
}

void MetricsFile::try_to_write() {
  try {
    file_.append_whole(lines_);
    lines_.clear();
    failing_ = false;
  } catch (const Error& error) {
    if (!failing_) {
      log_error(std::string(error.what()) + "; training goes on, and the lines wait in memory");
    }
    failing_ = true;
  }
}

void MetricsFile::sync() {
  file_.append_whole(lines_);
  lines_.clear();
  file_.sync();
}

namespace {

/// The step that a line is of; none if it is cut off.
std::optional<std::int64_t> step_of(const std::string& line) {
  const auto value = nlohmann::json::parse(line, nullptr, false);
  if (!value.is_object() || !value.contains("step") || !value["step"].is_number_integer()) {
    return std::nullopt;
  }
  return value["step"].get<std::int64_t>();
}

}  // namespace

std::optional<std::int64_t> last_step(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::optional<std::int64_t> last;
  for (std::string line; std::getline(file, line);) {
    if (const auto step = step_of(line)) last = step;
  }
  return last;
}

void keep_metrics_until(const std::filesystem::path& path, std::int64_t step) {
  std::map<std::int64_t, std::string> lines;
  {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const auto of = step_of(line);
      if (of && *of <= step) lines[*of] = line;
    }
  }
  WholeFile kept(path);
  for (const auto& [number, line] : lines) kept.write(line + "\n");
  kept.publish();
}

void add_val_loss(const std::filesystem::path& path, std::int64_t step, double val_loss) {
  std::string text;
  {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line); text += line + "\n") {
      const std::size_t place = line.find(after_val_loss);
      if (step_of(line) != step || place == std::string::npos) continue;
      std::string value;
      append(value, val_loss_key, val_loss);
      line.insert(place, value);
    }
  }
  write_whole_file(path, text);
}

}  // namespace trainctl
