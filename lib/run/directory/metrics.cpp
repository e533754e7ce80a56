#include "run/directory/metrics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/error.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "formats/print/text.h"

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
  append(text, ", \"lr\": ", static_cast<float>(report.lr));  // as it was applied
  append(text, ", \"tokens\": ", report.tokens);
  append(text, ", \"positions\": ", report.positions);
  append(text, ", \"labels\": ", report.labels);
  if (report.batch_size) append(text, ", \"batch_size\": ", *report.batch_size);
  if (report.max_attention_logit) {
    append(text, ", \"max_attention_logit\": ", *report.max_attention_logit);
  }
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

MetricsFile::MetricsFile(std::filesystem::path path, const Fence& fence)
    : path_(std::move(path)), fence_(fence), file_(File::open_to_extend(path_)) {
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
    look_for_file();
    write_waiting();
    failing_ = false;
  } catch (const Error& error) {
    if (error.code() == ExitCode::taken) throw;
    if (!failing_) {
      log_error(std::string(error.what()) + "; training goes on, and the lines wait in memory");
    }
    failing_ = true;
    drop_oldest();
  }
}

void MetricsFile::write_waiting() {
  file_.append_whole(lines_);
  lines_.clear();
  if (lost_ == 0) return;
  log_warning(path_.string() + ": " + grouped_count(lost_, "line") +
              " before these were lost while the file could not be written");
  lost_ = 0;
}

/// Half of the lines at once, so that this is seldom.
void MetricsFile::drop_oldest() {
  if (lines_.size() <= most_waiting) return;
  if (lost_ == 0) {
    log_error(path_.string() + " cannot be written for so long that the oldest lines are lost");
  }
  const std::size_t end = lines_.find('\n', lines_.size() / 2) + 1;
  lost_ += std::count(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  lines_.erase(0, end);
}

/// Whether the file still has its name is asked once a second.
void MetricsFile::look_for_file() {
  const auto now = Clock::now();
  if (now - looked_ < std::chrono::seconds(1)) return;
  looked_ = now;
  if (!file_.is_named(path_)) write_again();
}

/// The file is still open, so its lines can be read.
void MetricsFile::write_again() {
  log_warning(path_.string() + " was removed while the run goes on; its lines are written again");
  std::string lines(static_cast<std::size_t>(file_.size()), '\0');
  file_.read_at(0, lines);
  std::error_code failure;  // shows when the file is made
  std::filesystem::create_directories(path_.parent_path(), failure);
  write_whole_file(path_, lines, fence_);
  file_ = File::open_to_extend(path_);
}

void MetricsFile::sync() {
  if (!file_.is_named(path_)) write_again();
  write_waiting();
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

/// None if there is no such file. A part that cannot be read is an error: its lines would be lost.
template <class Body>
void for_each_line(const std::filesystem::path& path, const Body& body) {
  if (kind_of_file(path) == FileKind::none) return;
  constexpr std::size_t piece = std::size_t{1} << 18;
  File file = File::open_to_read(path);
  std::string text;
  for (bool more = true; more;) {
    const std::size_t have = text.size();
    text.resize(have + piece);
    const std::int64_t got = file.read(std::span(text).subspan(have));
    text.resize(have + static_cast<std::size_t>(got));
    more = got > 0;
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != std::string::npos;) {
      body(text.substr(begin, end - begin));
      begin = end + 1;
    }
    text.erase(0, begin);
  }
  if (!text.empty()) body(text);
}

}  // namespace

std::optional<std::int64_t> last_step(const std::filesystem::path& path) {
  std::optional<std::int64_t> last;
  for_each_line(path, [&](const std::string& line) {
    if (const auto step = step_of(line)) last = step;
  });
  return last;
}

std::int64_t keep_metrics_until(const std::filesystem::path& path, std::int64_t step,
                                const Fence& fence) {
  std::map<std::int64_t, std::string> lines;
  for_each_line(path, [&](const std::string& line) {
    const auto of = step_of(line);
    if (of && *of <= step) lines[*of] = line;
  });
  WholeFile kept(path, 0644, &fence);
  for (const auto& [number, line] : lines) kept.write(line + "\n");
  kept.publish();
  return step - std::ssize(lines);
}

void add_val_loss(const std::filesystem::path& path, std::int64_t step, double val_loss,
                  const Fence& fence) {
  std::string text;
  for_each_line(path, [&](std::string line) {
    const std::size_t place = line.find(after_val_loss);
    if (step_of(line) == step && place != std::string::npos) {
      std::string value;
      append(value, val_loss_key, val_loss);
      line.insert(place, value);
    }
    text += line + "\n";
  });
  write_whole_file(path, text, fence);
}

}  // namespace trainctl
