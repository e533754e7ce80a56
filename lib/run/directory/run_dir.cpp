#include "run/directory/run_dir.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/inspect.h"
#include "checkpoint/manifest.h"
#include "config/read/read.h"
#include "formats/print/text.h"
#include "weights/hugging_face.h"

namespace trainctl {

namespace {

constexpr const char* val_loss_key = ", \"val_loss\": ";
constexpr std::ptrdiff_t max_loads = 1024;  // loads in a line
constexpr const char* after_val_loss = ", \"tokens_per_second\": ";

/// Appends a number; a double with the shortest digits that read back to the same value.
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

/// Loads in percent: of each expert in each layer, or means over the layers if those are many.
void append_loads(const RouterReport& router, std::string& text) {
  const std::int64_t experts = router.experts;
  const std::int64_t layers = std::ssize(router.loads) / std::max<std::int64_t>(1, experts);
  const bool means = std::ssize(router.loads) > max_loads;
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
  append(text, ", \"lr\": ", static_cast<float>(report.lr));  // rounded as it was applied
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
  lines_ += json_text(line, JsonText::Style::compact) + "\n";
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
      log_error(std::string(error.what()) + "; training continues, and the lines wait in memory");
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

/// Drops half of the lines at once, so that this is rare.
void MetricsFile::drop_oldest() {
  if (lines_.size() <= max_waiting) return;
  if (lost_ == 0) {
    log_error(path_.string() + " cannot be written for so long that the oldest lines are lost");
  }
  const std::size_t end = lines_.find('\n', lines_.size() / 2) + 1;
  lost_ += std::count(lines_.begin(), lines_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  lines_.erase(0, end);
}

/// Checks once a second whether the file still has its name.
void MetricsFile::look_for_file() {
  const auto now = Clock::now();
  if (now - looked_ < std::chrono::seconds(1)) return;
  looked_ = now;
  if (!file_.is_named(path_)) write_again();
}

/// Writes the lines of a removed file to a new one; the removed file is still open for reading.
void MetricsFile::write_again() {
  log_warning(path_.string() + " was removed during the run; its lines are written again");
  std::string lines(static_cast<std::size_t>(file_.size()), '\0');
  file_.read_at(0, lines);
  std::error_code failure;  // a failure shows when the file is created
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

/// The step of a line; none if the line is cut off.
std::optional<std::int64_t> step_of(const std::string& line) {
  const auto value = nlohmann::json::parse(line, nullptr, false);
  if (!value.is_object() || !value.contains("step") || !value["step"].is_number_integer()) {
    return std::nullopt;
  }
  return value["step"].get<std::int64_t>();
}

/// Calls `body` for each line, if the file exists. Unreadable parts are errors: lines would be
/// lost.
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

namespace {

namespace fs = std::filesystem;

constexpr std::array own_files{"config.yaml",   "plan.json",
                               "metrics.jsonl", "model.safetensors",
                               "config.json",   "generation_config.json",
                               "measured.json", "report.html",
                               "tensorboard",   "product_algorithms.json",
                               "layout.yaml"};

/// The files and directories that a run writes, as far as they are there.
std::vector<fs::path> files_of_run(const fs::path& directory) {
  std::vector<std::string> known(own_files.begin(), own_files.end());
  known.emplace_back("checkpoints");
  const std::vector<std::string> names = names_in(directory);
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has("metrics.jsonl")) {  // a run copies its model's tokenizer
    for (const char* name : tokenizer_files()) known.emplace_back(name);
  }
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    const bool is_log = name.starts_with("rank-") && name.ends_with(".log");
    const bool is_own = std::find(known.begin(), known.end(), name) != known.end();
    if (is_log || is_own) files.push_back(directory / name);
  }
  return files;
}

/// Whether the path is an empty folder, perhaps a link to another disk made for the run.
bool is_empty_folder(const fs::path& path) {
  return kind_of_file(path) == FileKind::folder && names_in(path).empty();
}

/// The configuration in a file written by a run; none if this program cannot read it.
std::optional<Config> written_config(const fs::path& path) {
  if (kind_of_file(path) == FileKind::none) return std::nullopt;
  const ReadResult read = read_config(path, {});
  if (read.diagnostics.has_errors()) return std::nullopt;
  return read.config;
}

class StartDecision {
 public:
  StartDecision(const fs::path& directory, const std::string& resume, const Config& config,
                std::int64_t steps)
      : directory_(directory),
        resume_(resume),
        config_(config),
        steps_(steps),
        folder_(directory) {}

  Start make() {
    const bool earlier = last_step(directory_ / "metrics.jsonl").has_value();
    const auto complete = folder_.complete();
    if (config_.output.overwrite && is_word(resume_)) {
      start_.earlier = Start::Earlier::removed;
    } else if (resume_ == "auto") {
      start_automatically(earlier);
    } else if (resume_ == "none") {
      if (earlier || !complete.empty()) refuse("--resume none begins a new run");
      refuse_foreign_files();
    } else {
      start_from(resume_, earlier);
    }
    return start_;
  }

 private:
  static bool is_word(const std::string& resume) { return resume == "auto" || resume == "none"; }

  void start_automatically(bool earlier) {
    for (const fs::path& path : folder_.incomplete()) {
      start_.notes.push_back("skipped " + path.string() + ": it is not complete");
    }
    const std::vector<CheckpointFolder::Entry> complete = folder_.complete();
    std::string damage;
    for (const CheckpointFolder::Entry& entry : complete) {
      try {
        const Manifest manifest = read_manifest(entry.path);
        return go_on(entry.path, manifest);
      } catch (const Error& error) {
        // Only content that was read and found wrong is damage.
        const bool damaged =
            error.code() == ExitCode::bad_data || error.code() == ExitCode::missing_input;
        if (!damaged) throw;
        damage = entry.path.string() + ": " + error.what();
        start_.notes.push_back("skipped " + damage);
      }
    }
    if (!complete.empty()) refuse_damaged(damage);
    if (!earlier) return refuse_foreign_files();
    if (is_finished()) {
      start_.kind = Start::Kind::finished;
    } else if (has_trained_weights()) {
      refuse("it has weights and no checkpoint to go on from");
    } else {
      start_.earlier = Start::Earlier::aside;
      start_.notes.push_back("the run in " + directory_.string() +
                             " ended before its first checkpoint; it begins again, and its files "
                             "move to " +
                             (directory_ / "before-restart-N").string());
    }
  }

  void start_from(const fs::path& named, bool earlier) {
    std::error_code failure;
    fs::path path = named;
    if (kind_of_file(path / manifest_name) == FileKind::none) {
      const auto complete = CheckpointFolder(named).complete();
      require(!complete.empty(), ExitCode::missing_input,
              "--resume " + named.string() +
                  ": no complete checkpoint is there, and none in its folder 'checkpoints'");
      path = complete.front().path;
    }
    const Manifest manifest = read_manifest(path);
    const bool own = fs::equivalent(fs::absolute(path).lexically_normal().parent_path(),
                                    folder_.path(), failure);
    const bool newer = own && has_newer(path);
    if (config_.output.overwrite && !own) {
      start_.earlier = Start::Earlier::removed;
    } else if (newer) {
      refuse("it has newer checkpoints than " + path.string());
    } else if (!own && earlier) {
      refuse("--resume " + named.string() + " is of another run");
    }
    go_on(path, manifest);
  }

  /// Whether the run has its own checkpoint newer than `path`.
  bool has_newer(const fs::path& path) const {
    std::error_code failure;
    return !fs::equivalent(folder_.complete().front().path, path, failure);
  }

  void go_on(const fs::path& path, const Manifest& manifest) {
    check_config(written_config(path / saved_config_name), path);
    start_.step = manifest.state.step;
    start_.kind = Start::Kind::resume;
    start_.checkpoint = path;
    start_.has_weights = has_weights();
  }

  void check_config(const std::optional<Config>& saved, const fs::path& path) {
    if (!saved) return;  // the shapes are compared elsewhere
    const std::string refused = refused_changes(*saved, config_);
    const std::string allowed = allowed_changes(*saved, config_);
    require(refused.empty(), ExitCode::config,
            "the configuration is not that of the run in " + path.string() + ":" + refused +
                "\nRates, batch sizes, layout, precision and length may change; for another model "
                "set another output.dir, or output.overwrite: true (--overwrite) to replace the "
                "run");
    if (!allowed.empty()) start_.notes.push_back("changed since the checkpoint:" + allowed);
  }

  /// Whether the final weights exist, or output.save_weights does not ask for them. A signal may
  /// have ended the run before they were written.
  bool has_weights() const { return !config_.output.save_weights || has_trained_weights(); }
  bool has_trained_weights() const {
    return kind_of_file(directory_ / "model.safetensors") != FileKind::none;
  }

  /// For a run without a checkpoint: whether its last step and its final weights exist.
  bool is_finished() {
    const auto step = last_step(directory_ / "metrics.jsonl");
    if (!step || *step < steps_ || !has_weights()) return false;
    check_config(written_config(directory_ / "config.yaml"), directory_);
    start_.step = *step;
    return true;
  }

  /// Refuses a directory that no run has entered if it holds files that this run would replace.
  void refuse_foreign_files() const {
    for (const char* sign : {"metrics.jsonl", "plan.json"}) {
      if (kind_of_file(directory_ / sign) != FileKind::none) return;
    }
    std::vector<fs::path> files = files_of_run(directory_);
    std::erase_if(files, is_empty_folder);
    require(files.empty(), ExitCode::usage,
            "the output folder " + directory_.string() + " holds " +
                (files.empty() ? "" : files.front().filename().string()) +
                ", which no run wrote there and this one would replace; set another output.dir, or "
                "output.overwrite: true (--overwrite) to replace it");
  }

  [[noreturn]] void refuse_damaged(const std::string& damage) const {
    throw Error(
        ExitCode::bad_data,
        "the output folder " + directory_.string() +
            " holds an earlier run, and no checkpoint of it is whole; the oldest: " + damage +
            "; set another output.dir, or output.overwrite: true (--overwrite) to replace "
            "the run");
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ExitCode::usage,
                "the output folder " + directory_.string() + " holds an earlier run, and " +
                    reason +
                    "; set another output.dir ({n} and {date} make a new one each time), or "
                    "output.overwrite: true (--overwrite) to replace it");
  }

  const fs::path& directory_;
  const std::string& resume_;
  const Config& config_;
  std::int64_t steps_;
  CheckpointFolder folder_;
  Start start_;
};

/// Deletes a path. If it is a link to a folder, deletes only the folder's contents, since the link
/// says where the run's files belong.
void delete_tree(const fs::path& path) {
  if (fs::is_symlink(fs::symlink_status(path)) && kind_of_file(path) == FileKind::folder) {
    for (const std::string& name : names_in(path)) delete_tree(path / name);
    return;
  }
  const std::string reason = remove_directory(path);
  require(reason.empty(), ExitCode::io, reason);
}

void move_aside(const fs::path& directory) {
  int number = 1;
  fs::path to;
  do {
    to = directory / ("before-restart-" + std::to_string(number++));
  } while (kind_of_file(to) != FileKind::none);
  std::error_code failure;
  fs::create_directory(to, failure);
  for (const fs::path& file : files_of_run(directory)) {
    const bool stays = failure || is_empty_folder(file);
    if (!stays) fs::rename(file, to / file.filename(), failure);
  }
  require(!failure, ExitCode::io,
          "cannot move the earlier run to " + to.string() + ": " + failure.message());
}

}  // namespace

fs::path output_directory(const std::string& pattern) {
  std::string text = pattern;
  const auto replace = [](std::string where, const std::string& what, const std::string& with) {
    for (std::size_t at = where.find(what); at != std::string::npos; at = where.find(what, at)) {
      where.replace(at, what.size(), with);
      at += with.size();
    }
    return where;
  };
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> date{};
  std::strftime(date.data(), date.size(), "%Y-%m-%d_%H%M%S", &local);
  text = replace(text, "{date}", date.data());
  if (text.find("{n}") == std::string::npos) return text;
  int number = 1;
  fs::path path;
  do {
    path = replace(text, "{n}", std::to_string(number++));
  } while (fs::exists(path));
  return path;
}

Start decide_start(const fs::path& directory, const std::string& resume, const Config& config,
                   std::int64_t steps) {
  return StartDecision(directory, resume, config, steps).make();
}

void prepare_run_dir(const fs::path& directory, const Start& start, const Fence& fence) {
  const CheckpointFolder folder(directory);
  if (fence.pass) fence.pass();
  const bool loads = !start.checkpoint.empty();
  if (start.earlier == Start::Earlier::removed) {
    for (const fs::path& file : files_of_run(directory)) delete_tree(file);
  } else if (start.earlier == Start::Earlier::aside) {
    move_aside(directory);
  }
  for (const fs::path& path : folder.incomplete()) delete_tree(path);
  // Always a new file: an earlier session that still runs has the old one open.
  const fs::path metrics = directory / "metrics.jsonl";
  if (loads) {
    const std::int64_t missing = keep_metrics_until(metrics, start.step, fence);
    std::error_code failure;
    const bool own = fs::equivalent(start.checkpoint.parent_path(), folder.path(), failure);
    if (own && missing > 0) {
      log_warning(metrics.string() + " has no line of " + std::to_string(missing) +
                  " of the steps up to " + std::to_string(start.step));
    }
  } else {
    write_whole_file(metrics, "", fence);
  }
}

}  // namespace trainctl
