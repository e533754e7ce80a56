#include "run/directory/run_dir.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/whole_file.h"
#include "checkpoint/config_changes.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "config/read/read.h"
#include "run/directory/metrics.h"
#include "weights/hugging_face_config.h"

namespace trainctl {

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

/// A folder made before the first run, perhaps a link to another disk.
bool is_empty_folder(const fs::path& path) {
  return kind_of_file(path) == FileKind::folder && names_in(path).empty();
}

/// The configuration in a file that a run wrote; none if it cannot be read by this program.
std::optional<Config> written_config(const fs::path& path) {
  if (kind_of_file(path) == FileKind::none) return std::nullopt;
  const ReadResult read = read_config(path, {});
  if (read.diagnostics.has_errors()) return std::nullopt;
  return read.config;
}

class Decision {
 public:
  explicit Decision(const StartRequest& request) : request_(request), folder_(request.directory) {}

  Start make() {
    const bool earlier = last_step(request_.directory / "metrics.jsonl").has_value();
    const auto complete = folder_.complete();
    if (request_.config.output.overwrite && is_word(request_.resume)) {
      start_.earlier = Start::Earlier::removed;
    } else if (request_.resume == "auto") {
      start_automatically(earlier);
    } else if (request_.resume == "none") {
      if (earlier || !complete.empty()) refuse("--resume none begins a new run");
      refuse_foreign_files();
    } else {
      start_from(request_.resume, earlier);
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
        // Only what was read and found wrong is damage.
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
      start_.notes.push_back("the run in " + request_.directory.string() +
                             " ended before its first checkpoint; it begins again, and its files "
                             "move to " +
                             (request_.directory / "before-restart-N").string());
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
    if (request_.config.output.overwrite && !own) {
      start_.earlier = Start::Earlier::removed;
    } else if (newer) {
      refuse("it has newer checkpoints than " + path.string());
    } else if (!own && earlier) {
      refuse("--resume " + named.string() + " is of another run");
    }
    go_on(path, manifest);
  }

  /// Whether the run has a newer checkpoint than `path`, one of its own.
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
    if (!saved) return;  // the shapes are compared all the same
    const auto changes = config_changes(*saved, request_.config);
    const std::string refused = list_changes(changes, false);
    const std::string allowed = list_changes(changes, true);
    require(refused.empty(), ExitCode::config,
            "the configuration is not that of the run in " + path.string() + ":" + refused +
                "\nRates, batch sizes, layout, precision and length may change; for another model "
                "set another output.dir, or output.overwrite: true (--overwrite) to replace the "
                "run");
    if (!allowed.empty()) start_.notes.push_back("changed since the checkpoint:" + allowed);
  }

  /// What a run writes at its end, if it is wanted. A signal may have ended it before.
  bool has_weights() const { return !request_.config.output.save_weights || has_trained_weights(); }
  bool has_trained_weights() const {
    return kind_of_file(request_.directory / "model.safetensors") != FileKind::none;
  }

  /// Without a checkpoint: whether the last step and the weights are there.
  bool is_finished() {
    const auto step = last_step(request_.directory / "metrics.jsonl");
    if (!step || *step < request_.steps || !has_weights()) return false;
    check_config(written_config(request_.directory / "config.yaml"), request_.directory);
    start_.step = *step;
    return true;
  }

  /// A directory that no run has entered may hold files that this run would replace.
  void refuse_foreign_files() const {
    for (const char* sign : {"metrics.jsonl", "plan.json"}) {
      if (kind_of_file(request_.directory / sign) != FileKind::none) return;
    }
    std::vector<fs::path> files = files_of_run(request_.directory);
    std::erase_if(files, is_empty_folder);
    require(files.empty(), ExitCode::usage,
            "the output folder " + request_.directory.string() + " holds " +
                (files.empty() ? "" : files.front().filename().string()) +
                ", which no run wrote there and this one would replace; set another output.dir, or "
                "output.overwrite: true (--overwrite) to replace it");
  }

  [[noreturn]] void refuse_damaged(const std::string& damage) const {
    throw Error(
        ExitCode::bad_data,
        "the output folder " + request_.directory.string() +
            " holds an earlier run, and no checkpoint of it is whole; the oldest: " + damage +
            "; set another output.dir, or output.overwrite: true (--overwrite) to replace "
            "the run");
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw Error(ExitCode::usage,
                "the output folder " + request_.directory.string() + " holds an earlier run, and " +
                    reason +
                    "; set another output.dir ({n} and {date} make a new one each time), or "
                    "output.overwrite: true (--overwrite) to replace it");
  }

  const StartRequest& request_;
  CheckpointFolder folder_;
  Start start_;
};

/// Of a link to a folder, what that holds: the link says where a run's files belong.
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

Start decide_start(const StartRequest& request) { return Decision(request).make(); }

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
  // A new file in any case: an earlier session that still runs has the old file open.
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
