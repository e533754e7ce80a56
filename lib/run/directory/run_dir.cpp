#include "run/directory/run_dir.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <optional>

#include "base/error.h"
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
  std::error_code failure;
  if (fs::exists(directory / "metrics.jsonl", failure)) {  // a run copies its model's tokenizer
    for (const char* name : tokenizer_files()) known.emplace_back(name);
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory, failure)) {
    const std::string name = entry.path().filename().string();
    const bool is_log = name.starts_with("rank-") && name.ends_with(".log");
    const bool is_own = std::find(known.begin(), known.end(), name) != known.end();
    if (is_log || is_own) files.push_back(entry.path());
  }
  return files;
}

bool is_requeued() {
  const char* count = std::getenv("SLURM_RESTART_COUNT");
  return count != nullptr && std::atoi(count) > 0;
}

/// The configuration in a file that a run wrote; none if it cannot be read by this program.
std::optional<Config> written_config(const fs::path& path) {
  std::error_code failure;
  if (!fs::exists(path, failure)) return std::nullopt;
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
    for (const CheckpointFolder::Entry& entry : folder_.complete()) {
      try {
        const Manifest manifest = read_manifest(entry.path);
        return go_on(entry.path, manifest);
      } catch (const Error& error) {
        if (error.code() == ExitCode::config) throw;
        start_.notes.push_back("skipped " + entry.path.string() + ": " + error.what());
      }
    }
    if (!earlier) return refuse_foreign_files();
    if (is_finished()) {
      start_.kind = Start::Kind::finished;
    } else if (is_requeued()) {
      start_.earlier = Start::Earlier::aside;
    } else {
      refuse("it has no checkpoint to go on from");
    }
  }

  void start_from(const fs::path& named, bool earlier) {
    std::error_code failure;
    fs::path path = named;
    if (!fs::exists(path / manifest_name, failure)) {
      const auto complete = CheckpointFolder(named).complete();
      require(!complete.empty(), ExitCode::missing_input,
              "--resume " + named.string() +
                  ": no complete checkpoint is there, and none in its folder 'checkpoints'");
      path = complete.front().path;
    }
    const Manifest manifest = read_manifest(path);
    const bool own = fs::equivalent(fs::absolute(path).lexically_normal().parent_path(),
                                    folder_.path(), failure);
    const bool newer =
        !folder_.complete().empty() && folder_.complete().front().step > manifest.state.step;
    if (request_.config.output.overwrite && !own) {
      start_.earlier = Start::Earlier::removed;
    } else if (own && newer) {
      refuse("it has newer checkpoints than " + path.string());
    } else if (!own && earlier) {
      refuse("--resume " + named.string() + " is of another run");
    }
    go_on(path, manifest);
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
  bool has_weights() const {
    std::error_code failure;
    return !request_.config.output.save_weights ||
           fs::exists(request_.directory / "model.safetensors", failure);
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
    std::error_code failure;
    for (const char* sign : {"metrics.jsonl", "plan.json"}) {
      if (fs::exists(request_.directory / sign, failure)) return;
    }
    const std::vector<fs::path> files = files_of_run(request_.directory);
    require(files.empty(), ExitCode::usage,
            "the output folder " + request_.directory.string() + " holds " +
                (files.empty() ? "" : files.front().filename().string()) +
                ", which no run wrote there and this one would replace; set another output.dir, or "
                "output.overwrite: true (--overwrite) to replace it");
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

void delete_tree(const fs::path& path) {
  std::error_code failure;
  fs::remove_all(path, failure);
  require(!failure, ExitCode::io, "cannot remove " + path.string() + ": " + failure.message());
}

/// A checkpoint that could not be read gives its name to the one that this run will write.
void set_apart(const fs::path& path) {
  const fs::path to = path.string() + ".damaged";
  delete_tree(to);
  std::error_code failure;
  fs::rename(path, to, failure);
  require(!failure, ExitCode::io, "cannot rename " + path.string() + ": " + failure.message());
}

void move_aside(const fs::path& directory) {
  int number = 1;
  fs::path to;
  do {
    to = directory / ("before-restart-" + std::to_string(number++));
  } while (fs::exists(to));
  std::error_code failure;
  fs::create_directory(to, failure);
  for (const fs::path& file : files_of_run(directory)) {
    if (!failure) fs::rename(file, to / file.filename(), failure);
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

void prepare_run_dir(const fs::path& directory, const Start& start) {
  const CheckpointFolder folder(directory);
  const bool loads = !start.checkpoint.empty();
  if (start.earlier == Start::Earlier::removed) {
    for (const fs::path& file : files_of_run(directory)) delete_tree(file);
  } else if (start.earlier == Start::Earlier::aside) {
    move_aside(directory);
  }
  for (const fs::path& path : folder.incomplete()) delete_tree(path);
  for (const CheckpointFolder::Entry& entry : folder.complete()) {
    if (loads && entry.step > start.step) set_apart(entry.path);
  }
  const fs::path metrics = directory / "metrics.jsonl";
  if (loads && fs::exists(metrics)) {
    keep_metrics_until(metrics, start.step);
  } else if (!loads) {
    write_whole_file(metrics, "");
  }
}

}  // namespace trainctl
