#include "layout_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "comm/world.h"
#include "config/read.h"
#include "config/standing.h"
#include "output.h"
#include "formats/group_file.h"
#include "formats/layout_file.h"
#include "planned.h"

namespace trainctl {

namespace {

constexpr const char* load_path = "parallel.strategy_ckpt_config.load_file";

/// Closed when it goes out of scope.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

std::string reason() { return std::strerror(errno); }

/// Throws Error{missing_input} with the reason alone.
std::string read_whole(const std::string& path) {
  constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
  // Not blocking: opening a pipe without a writer would wait for one.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  require(file.number() >= 0 && ::fstat(file.number(), &about) == 0, ExitCode::missing_input,
          "cannot be read: " + reason());
  require(S_ISREG(about.st_mode), ExitCode::missing_input, "is no regular file");
  require(about.st_size <= most_bytes, ExitCode::missing_input,
          "has " + std::to_string(about.st_size) + " bytes, more than the " +
              std::to_string(most_bytes) + " that a strategy file may have");
  std::string text(static_cast<std::size_t>(about.st_size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::read(file.number(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    require(count >= 0, ExitCode::missing_input, "cannot be read: " + reason());
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return ::fsync(file) == 0;
}

/// Whole or not at all, for its owner only; folders on the way are made.
void write_private(const std::string& path, std::string_view bytes) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failure;
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  require(!failure, ExitCode::io,
          "cannot create the folder " + folder.string() + ": " + failure.message());
  std::string part = path + ".XXXXXX";
  const Descriptor file(::mkostemp(part.data(), O_CLOEXEC));  // mode 0600
  require(file.number() >= 0, ExitCode::io, "cannot write " + path + ": " + reason());
  if (write_all(file.number(), bytes) && ::rename(part.c_str(), path.c_str()) == 0) return;
  const std::string why = reason();
  ::unlink(part.c_str());
  throw Error(ExitCode::io, "cannot write " + path + ": " + why);
}

void write_layout_file(const Config& config, const Plan& plan) {
  const StrategyFileConfig& files = config.parallel.strategy_ckpt_config;
  if (files.save_file.empty()) return;
  const OptimizerConfig* states = files.only_trainable_params ? nullptr : &config.optimizer;
  write_private(files.save_file, write_layouts(make_layout_file(plan, config.parallel, states),
                                               is_json_name(files.save_file)));
}

void write_group_file(const std::string& file, const Config& config, const Plan& plan,
                      std::int64_t rank) {
  if (file.empty()) return;
  write_private(file, write_groups(make_group_file(plan, config.parallel, rank)));
}

bool names_files(const ParallelConfig& parallel) {
  return !parallel.strategy_ckpt_config.load_file.empty() ||
         !parallel.strategy_ckpt_config.save_file.empty() || !parallel.group_ckpt_save_file.empty();
}

bool is_ours(const Diagnostic& diagnostic) { return diagnostic.code.starts_with("strategy-"); }

}  // namespace

void check_layout_file(const Config& config, const Plan& plan, const SourceMap& sources,
                       Diagnostics& diagnostics) {
  const std::string& file = config.parallel.strategy_ckpt_config.load_file;
  if (file.empty()) return;
  Check check(sources, diagnostics);
  try {
    const LayoutFile loaded = read_layouts(read_whole(file), is_json_name(file));
    compare_layouts(loaded, make_layout_file(plan, config.parallel, &config.optimizer), file,
                    check);
  } catch (const Error& failure) {
    check.error("strategy-file", load_path, file + ": " + failure.what(),
                "name a file that parallel.strategy_ckpt_config.save_file wrote, or leave "
                "load_file out");
  }
}

void write_layout_files(const Config& config, const Plan& plan, std::int64_t rank) {
  write_layout_file(config, plan);
  write_group_file(config.parallel.group_ckpt_save_file, config, plan, rank);
}

std::string name_for_rank(const std::string& file, std::int64_t rank) {
  const std::filesystem::path path(file);
  std::string name = path.stem().string() + "-rank" + std::to_string(rank);
  return (path.parent_path() / (name += path.extension().string())).string();
}

std::optional<int> prepare_layout_files(const TrainRequest& request) {
  if (!names_files(read_config(request.config, request.set_options).config.parallel)) return {};
  const LaunchedAs launched = launched_as();
  const bool threads = request.local_ranks > 0;
  const int ranks = threads ? request.local_ranks : launched.size;
  const int first = threads ? 0 : launched.rank;
  Planned planned = plan_config(
      {.config = request.config.string(), .set_options = request.set_options, .world_size = ranks});
  Diagnostics& diagnostics = planned.read.diagnostics;
  const auto& list = diagnostics.list();
  const bool refused = std::any_of(list.begin(), list.end(), [](const Diagnostic& found) {
    return found.severity == Severity::error && is_ours(found);
  });
  if (planned.read.complete) {
    check_standing(planned.read.config, planned.read.sources, Severity::error, diagnostics);
  }
  const bool valid = planned.ok();
  // Everything else is said when the run starts.
  if (!refused) diagnostics.drop_if([](const Diagnostic& found) { return !is_ours(found); });
  diagnostics.sort();
  if (first == 0) print_message(render_text(diagnostics, request.color));
  if (refused) return static_cast<int>(ExitCode::config);
  if (!valid) return {};
  const Config& config = planned.read.config;
  if (first == 0) write_layout_file(config, planned.plan);
  const std::string& groups = config.parallel.group_ckpt_save_file;
  for (int rank = first; rank < (threads ? ranks : first + 1); ++rank) {
    write_group_file(groups.empty() || ranks == 1 ? groups : name_for_rank(groups, rank), config,
                     planned.plan, rank);
  }
  return {};
}

}  // namespace trainctl
