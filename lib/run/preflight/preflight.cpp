#include "run/preflight/preflight.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "config/report/diagnostics.h"
#include "data/build.h"
#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "device/cuda_device.h"
#include "formats/print/text.h"
#include "plan/ownership/ownership.h"
#include "run/preflight/machine.h"
#include "run/records/step_records.h"

namespace trainctl {

// Checks the data section: whether every file can be read, its size, and whether the model's
// vocabulary has its tokens.

namespace {

/// The finding of `look`, or the error that it throws, with `path` as its key.
template <class Look>
Finding found(const std::string& what, const std::string& path, const Look& look) {
  try {
    return {what + look()};
  } catch (const Error& error) {
    return {what + error.what(), LogLevel::error, error.code(), path};
  }
}

/// A suggestion for the name of a missing file: the nearest name in its folder, or in the current
/// one.
std::string help_for_missing(const std::filesystem::path& path) {
  std::error_code failure;
  const std::filesystem::path folder =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    names.push_back(entry.path().filename().string());
    if (entry.path().extension() == ".idx") names.push_back(entry.path().stem().string());
  }
  const std::string near = nearest(path.filename().string(), names);
  if (!near.empty()) return "write " + (path.parent_path() / near).string();
  if (path.is_absolute()) return "write the path of a text, of a folder or of a token file";
  return "relative paths are looked up in " + std::filesystem::current_path(failure).string() +
         "; write the full path";
}

/// Requires enough tokens for one sample if documents are joined. `most`: the number of tokens of a
/// file, or its upper bound for a text. Sources of weight 0 are exempt.
void require_sample(const PreflightInput& input, const std::string& what, std::int64_t most) {
  const DataConfig& data = input.read.config.data;
  const std::int64_t needed = input.plan.model.seq_length + 1;
  const bool used =
      std::ranges::none_of(data.train, [](const auto& one) { return one.weight == 0; });
  if (most >= needed || !data.packing || !used) return;
  throw Error(ExitCode::bad_data, what + "; model.seq_length " + std::to_string(needed - 1) +
                                      " needs at least " + std::to_string(needed) + " tokens");
}

std::string text_line(const std::string& path, const PreflightInput& input) {
  constexpr std::int64_t max_extra = 2;  // tokens added to those of a file's bytes
  const std::vector<InputFile> files = list_inputs({path});
  std::int64_t bytes = 0;
  for (const InputFile& file : files) {
    File::open_to_read(file.path);  // throws an Error with the name of an unreadable file
    bytes += file.bytes;
  }
  const std::string text =
      path + ": text, " + grouped_count(std::ssize(files), "file") + ", " + format_bytes(bytes);
  require_sample(input, text, bytes + max_extra * std::ssize(files));
  return text;
}

std::string token_line(const std::string& path, const PreflightInput& input) {
  const TokenFile file = TokenFile::open(path);
  const std::string counts = path + ": " + format_grouped(file.tokens()) + " tokens in " +
                             grouped_count(file.documents(), "document");
  require_sample(input, counts, file.tokens());
  if (!input.whole_data) return counts;
  file.check_vocabulary(input.plan.model.vocab);
  return counts + ", all below model.vocab_size " + format_grouped(input.plan.model.vocab);
}

Finding check_tokenizer(const PreflightInput& input) {
  const std::string& name = input.read.config.data.tokenizer;
  const std::int64_t vocabulary = input.plan.model.vocab;
  std::string help;
  Finding finding = found("", "data.tokenizer", [&] {
    const std::int64_t tokens = Tokenizer::open(name).vocab_size();
    const std::string text = name + " has " + format_grouped(tokens) + " tokens, ";
    const std::string size = "model.vocab_size is " + format_grouped(vocabulary);
    if (tokens > vocabulary) help = "set model.vocab_size to " + std::to_string(tokens);
    require(tokens <= vocabulary, ExitCode::config, text + "but " + size);
    return text + size;
  });
  const bool fine = finding.level == LogLevel::info;
  finding.text = (fine ? "tokenizer: " : "data.tokenizer: ") + finding.text;
  finding.help = help;
  return finding;
}

/// A finding for the tokenizer if there is text, and one for each file of data.train and
/// data.validation. Text is not tokenised.
std::vector<Finding> check_data(const PreflightInput& input) {
  const DataConfig& data = input.read.config.data;
  std::vector<Finding> findings;
  bool any_text = false;
  const auto check = [&](const std::string& name, const std::string& key, const std::string& path) {
    Finding finding = found("", key, [&] {
      if (!is_text_input(path)) return token_line(path, input);
      any_text = true;
      return text_line(path, input);
    });
    const bool fine = finding.level != LogLevel::error;
    finding.text = (fine ? name : key.substr(0, key.find_last_not_of("0123456789.") + 1)) + ": " +
                   finding.text;
    if (finding.code == ExitCode::missing_input) finding.help = help_for_missing(path);
    findings.push_back(std::move(finding));
  };
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    check("data", "data.train." + std::to_string(i), data.train[i].path);
  }
  if (data.validation.path) {
    check("validation data", "data.validation.path", *data.validation.path);
  }
  if (any_text) findings.insert(findings.begin(), check_tokenizer(input));
  return findings;
}

namespace fs = std::filesystem;

// Size of a line of metrics.jsonl, and of its copy in event files; rounded up.
constexpr std::int64_t metrics_line_bytes = 512;
constexpr std::int64_t load_bytes = 5;  // for each expert's load in a line
constexpr std::int64_t event_bytes = 512;
// Sizes of config.yaml, plan.json, measured.json and report.html together, whose curves have at
// most 1,000 points; of the small files of a checkpoint; of a rank's log.
constexpr std::int64_t reports_bytes = std::int64_t{1} << 20;
constexpr std::int64_t manifest_bytes = std::int64_t{1} << 17;
constexpr std::int64_t log_bytes = 4096;

/// Bytes that the rest of the run writes, except weights and checkpoints.
std::int64_t records_bytes(const Config& config, const Plan& plan) {
  constexpr std::int64_t max_loads = 1024;  // loads in a line
  const std::int64_t loads =
      plan.model.experts > 1 ? std::min(max_loads, plan.model.experts * plan.model.layers) : 0;
  std::int64_t line = metrics_line_bytes + load_bytes * loads;
  if (config.output.tensorboard) line += event_bytes;
  const std::int64_t steps = config.train.steps - plan.ramp.front().first_step;
  return steps * line + reports_bytes + log_bytes * plan.mesh.world_size();
}

/// Bytes that the run needs on the disk: the weights, checkpoints that exist at the same time, and
/// records.
struct DiskNeed {
  std::int64_t records = 0;
  std::int64_t weights = 0;
  std::int64_t checkpoint = 0;  // bytes of one checkpoint
  std::int64_t most = 0;        // number of checkpoints at the same time
};

DiskNeed disk_need(const Config& config, const Plan& plan) {
  DiskNeed need{.records = records_bytes(config, plan)};
  const std::int64_t parameters = plan.parameter_count();
  if (config.output.save_weights) need.weights = 4 * parameters;
  const CheckpointConfig& rule = config.checkpoint;
  const bool during = rule.every > 0 || rule.every_minutes > 0;
  if (!during && !rule.at_end) return need;
  need.checkpoint = saved_bytes(plan, config.optimizer) + manifest_bytes;
  const std::int64_t all = 1 + (rule.every > 0 ? config.train.steps / rule.every : 0);
  // The new checkpoint is written before the oldest one is removed.
  need.most = during && rule.keep > 0 ? std::min(all, rule.keep + 1) : all;
  if (rule.keep_best) ++need.most;
  return need;
}

Finding check_disk(const PreflightInput& input) {
  const DiskNeed need = disk_need(input.read.config, input.plan);
  const auto free = free_disk(input.directory);
  const std::int64_t all = need.records + need.weights + need.most * need.checkpoint;
  std::string text = "disk: " + format_bytes(all) + " for ";
  if (need.weights > 0) text += need.most > 0 ? "the weights, " : "the weights and ";
  if (need.most > 0) {
    text += "up to " + grouped_count(need.most, "checkpoint") + " of " +
            format_bytes(need.checkpoint) + " and ";
  }
  text += format_bytes(need.records) + " of metrics, logs and reports";
  if (!free) return {text};
  text += ", " + format_bytes(*free) + " free at " + input.directory.string();
  const std::int64_t least =
      need.records + need.weights + std::min<std::int64_t>(need.most, 1) * need.checkpoint;
  if (least > *free) {
    return {text, LogLevel::error, ExitCode::io, "output.dir",
            "set output.dir to a folder of a larger disk, or free some of this one"};
  }
  return {text, all > *free ? LogLevel::warning : LogLevel::info};
}

/// Errors for folders to which the run must write but cannot.
std::vector<Finding> check_folders(const PreflightInput& input) {
  const Config& config = input.read.config;
  const StrategyFileConfig& strategy = config.parallel.strategy_ckpt_config;
  std::vector<std::pair<std::string, fs::path>> folders{{"output.dir", input.directory}};
  if (!config.data.cache_dir.empty()) folders.emplace_back("data.cache_dir", config.data.cache_dir);
  const std::pair<const char*, fs::path> files[] = {
      {"log.trace", config.log.trace},
      {"parallel.strategy_ckpt_config.save_file", strategy.save_file},
      {"parallel.group_ckpt_save_file", config.parallel.group_ckpt_save_file}};
  for (const auto& [key, file] : files) {
    if (!file.empty()) folders.emplace_back(key, fs::absolute(file).parent_path());
  }
  std::vector<Finding> findings;
  for (const auto& [key, folder] : folders) {
    const std::string why = why_not_writable(folder);
    if (why.empty()) continue;
    findings.push_back({key + ": cannot write there: " + why, LogLevel::error, ExitCode::io, key,
                        "set " + key + " to a place that this user can write to"});
  }
  return findings;
}

Finding check_memory(const PreflightInput& input) {
  const MemoryEstimate& rank = input.plan.max_memory();
  const int processes = std::max(1, input.ranks_here / std::max(1, input.ranks_in_process));
  const std::int64_t planned =
      input.ranks_here * (rank.host() - rank.runtime) + processes * rank.runtime;
  std::string text = "memory: " + format_bytes(planned) + " planned for " +
                     grouped_count(input.ranks_here, "rank");
  const auto room = memory_room();
  if (!room) return {text};
  text += ", " + format_bytes(room->free) + " free of " + format_bytes(room->limit) + " (" +
          room->of + ")";
  if (planned > room->limit) {
    return {text, LogLevel::error, ExitCode::unavailable, "train.micro_batch_size",
            "set train.micro_batch_size lower, or recompute.enable to true, or start fewer ranks "
            "here"};
  }
  return {text, planned > room->free ? LogLevel::warning : LogLevel::info};
}

/// The threads of a process: those that compute, and for each rank four more that read data, save,
/// keep the lease and look for hangs.
std::int64_t threads_of(const PreflightInput& input) {
  return input.ranks_in_process * (input.plan.threads_per_rank + std::int64_t{4});
}

// Memory for measurements of the machine's rates at the start and end of a run (rates.h).
constexpr std::int64_t measured_bytes = std::int64_t{64} << 20;

/// Checks the limit of the shell on a process's address space. The program, its libraries and their
/// threads already use a part of it.
std::optional<Finding> check_address_space(const PreflightInput& input) {
  const auto limit = address_space_limit();
  if (!limit) return std::nullopt;
  const std::int64_t used = virtual_bytes();
  const MemoryEstimate& rank = input.plan.max_memory();
  const std::int64_t planned = input.ranks_in_process * (rank.host() - rank.runtime) +
                               threads_of(input) * thread_stack() + measured_bytes;
  const std::string text = "address space: " + format_bytes(planned) + " planned for a process, " +
                           format_bytes(used) + " used already, the limit is " +
                           format_bytes(*limit);
  if (planned + used <= *limit) return Finding{text};
  return Finding{text, LogLevel::error, ExitCode::unavailable, "", "raise it with ulimit -v"};
}

/// Checks the device of each rank, the one with its local rank unless devices are shared. Only
/// tensors that do not fit stop a run; a lack of memory for libraries is a warning.
std::optional<Finding> check_devices(const PreflightInput& input) {
  if (input.plan.device != DeviceKind::cuda) return std::nullopt;
  const MemoryEstimate& rank = input.plan.max_memory();
  try {
    const CudaModule& cuda = cuda_module();
    const int count = cuda.device_count();
    const std::int64_t share = (input.ranks_here + count - 1) / count;  // ranks per device
    const std::int64_t planned = share * rank.device();
    const std::int64_t least = planned - share * (rank.library + rank.communicators);
    if (cuda_device_of(input.ranks_here - 1, shares(input.plan.share_devices)) < 0) {
      return Finding{"devices: " + grouped_count(input.ranks_here, "rank") +
                         " here need one each, " + std::to_string(count) + " visible",
                     LogLevel::error, ExitCode::unavailable, "parallel.device",
                     "start fewer ranks, or let them share devices "
                     "(parallel.share_devices: true)"};
    }
    CudaDeviceProperties smallest = cuda.properties(0);
    for (int device = 0; device < std::min<std::int64_t>(count, input.ranks_here); ++device) {
      cuda_multiprocessors_beside(device, input.plan.product_sm_margin);
      const CudaDeviceProperties other = cuda.properties(device);
      if (other.memory_bytes < smallest.memory_bytes) smallest = other;
    }
    const std::string text = "devices: " + format_bytes(planned) + " planned for " +
                             (share > 1 ? "the ranks of each" : "each rank") + ", of " +
                             format_bytes(smallest.memory_bytes) + " (" + smallest.name + ")";
    if (least > smallest.memory_bytes) {
      return Finding{text + "; " + format_bytes(least) + " of that are tensors, which do not fit",
                     LogLevel::error, ExitCode::unavailable, "train.micro_batch_size",
                     "set train.micro_batch_size lower, or recompute.enable to true"};
    }
    const bool tight = planned > smallest.memory_bytes;
    return Finding{text, tight ? LogLevel::warning : LogLevel::info};
  } catch (const Error& error) {
    return Finding{std::string("devices: ") + error.what(), LogLevel::error, error.code(),
                   "parallel.device", "set parallel.device to cpu (--device cpu), or to auto"};
  }
}

Finding check_files(const PreflightInput& input) {
  const Config& config = input.read.config;
  const auto sources =
      static_cast<std::int64_t>(config.data.train.size()) + (config.data.validation.path ? 1 : 0);
  // A token file needs two descriptors, four if a part of it is for validation; MPI needs more.
  const std::int64_t needed = 64 + input.ranks_in_process * (4 * sources + 8);
  const std::int64_t limit = file_limit();
  const std::string text =
      "open files: up to " + format_grouped(needed) + ", the limit is " + format_grouped(limit);
  if (needed <= limit) return {text};
  return {text, LogLevel::error, ExitCode::unavailable, "", "raise it with ulimit -n"};
}

std::optional<Finding> check_shared_memory(const PreflightInput& input) {
  if (!input.over_mpi || input.ranks_here < 2) return std::nullopt;
  constexpr std::int64_t per_rank = std::int64_t{8} << 20;  // mapped by MPI libraries for messages
  const auto free = free_disk("/dev/shm");
  const std::int64_t needed = input.ranks_here * per_rank;
  if (!free) return std::nullopt;
  const std::string text = "shared memory: about " + format_bytes(needed) + " for messages, " +
                           format_bytes(*free) + " free in /dev/shm";
  return Finding{text, needed > *free ? LogLevel::warning : LogLevel::info};
}

constexpr std::int64_t max_tried = 4096;  // most threads to start, in about a tenth of a second

Finding check_threads(const PreflightInput& input) {
  const std::int64_t threads = std::int64_t{input.ranks_here} * input.plan.threads_per_rank;
  const std::string text = "threads: " + grouped_count(input.ranks_here, "rank") + " x " +
                           grouped_count(input.plan.threads_per_rank, "thread") + " on " +
                           grouped_count(input.cores, "core");
  const int wanted = static_cast<int>(std::min<std::int64_t>(threads_of(input), max_tried));
  const int started = startable_threads(wanted);
  if (started < wanted) {
    return {"threads: the system lets this process start only " + std::to_string(started) + " of " +
                std::to_string(wanted) +
                " more; raise the limit with ulimit -u, or that of the container",
            LogLevel::error, ExitCode::unavailable};
  }
  if (threads <= input.cores) return {text};
  return {text + "; ranks that share cores wait for each other", LogLevel::warning};
}

std::optional<Finding> check_time(const PreflightInput& input) {
  const auto left = slurm_seconds_left();
  if (!left) return std::nullopt;
  std::string text = "time: " + format_seconds(std::max(0.0, *left)) + " left of the Slurm job";
  if (!input.plan.time) return Finding{text};
  const double needed =
      input.plan.time->step() * static_cast<double>(input.read.config.train.steps);
  text += ", the steps take about " + format_seconds(needed);
  const bool saves =
      input.read.config.checkpoint.every > 0 || input.read.config.checkpoint.every_minutes > 0;
  if (needed <= *left || saves) return Finding{text};
  return Finding{text + " and no checkpoint is saved on the way", LogLevel::warning};
}

}  // namespace

std::vector<Finding> preflight(const PreflightInput& input) {
  std::vector<Finding> findings = check_data(input);
  std::ranges::move(check_folders(input), std::back_inserter(findings));
  findings.push_back(check_disk(input));
  findings.push_back(check_memory(input));
  if (auto finding = check_address_space(input)) findings.push_back(*finding);
  if (auto finding = check_devices(input)) findings.push_back(*finding);
  findings.push_back(check_files(input));
  if (auto finding = check_shared_memory(input)) findings.push_back(*finding);
  findings.push_back(check_threads(input));
  if (auto finding = check_time(input)) findings.push_back(*finding);
  return findings;
}

ExitCode tell_findings(const std::string& refusal, const SourceMap& sources,
                       const std::vector<Finding>& findings) {
  std::vector<const Finding*> errors;
  for (const Finding& finding : findings) {
    if (finding.level == LogLevel::error) {
      errors.push_back(&finding);
    } else {
      log(finding.level, finding.text);
    }
  }
  if (errors.empty()) return ExitCode::ok;
  log_error(refusal + ": " + grouped_count(std::ssize(errors), "error"));
  for (const Finding* error : errors) {
    const Place place = error->path.empty() ? Place{} : sources.find(error->path);
    const bool placed = place.origin != Place::Origin::defaulted;
    log_error((placed ? place.to_string() + ": " : "") + error->text +
              (error->help.empty() ? "" : "\n     help: " + error->help));
  }
  return errors.front()->code;
}

}  // namespace trainctl
