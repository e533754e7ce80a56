#include "run/beginning.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/sudden_end.h"
#include "base/whole_file.h"
#include "comm/others_wait.h"
#include "run/search/layout_choice.h"

namespace trainctl {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Directory entries may take so long to reach other hosts.
constexpr auto longest_look = std::chrono::seconds(10);

std::string to_text(const Beginning& beginning) {
  return Json{{"directory", beginning.directory.string()},
              {"kind", static_cast<int>(beginning.start.kind)},
              {"earlier", static_cast<int>(beginning.start.earlier)},
              {"checkpoint", beginning.start.checkpoint.string()},
              {"step", beginning.start.step},
              {"has_weights", beginning.start.has_weights},
              {"session", beginning.fence.session},
              {"refused", static_cast<int>(beginning.refused)}}
      .dump();
}

void from_text(const std::string& text, Beginning& beginning) {
  const Json value = Json::parse(text);
  beginning.directory = value["directory"].get<std::string>();
  beginning.start.kind = static_cast<Start::Kind>(value["kind"].get<int>());
  beginning.start.earlier = static_cast<Start::Earlier>(value["earlier"].get<int>());
  beginning.start.checkpoint = value["checkpoint"].get<std::string>();
  beginning.start.step = value["step"].get<std::int64_t>();
  beginning.start.has_weights = value["has_weights"].get<bool>();
  beginning.fence.session = value["session"].get<std::int64_t>();
  beginning.refused = static_cast<ExitCode>(value["refused"].get<int>());
}

/// A number for {n} belongs to the run that makes its directory: another may begin just then.
fs::path claimed_directory(const std::string& pattern) {
  while (true) {
    const fs::path path = output_directory(pattern);
    if (pattern.find("{n}") == std::string::npos) return path;
    std::error_code failure;
    fs::create_directories(path.parent_path(), failure);
    if (fs::create_directory(path, failure) || failure) return path;
  }
}

/// A lost run is not this process's any more: what it still does must end soon.
void end_process() { end_suddenly(ExitCode::taken); }

Beginning decide(const Config& config, std::int64_t steps, const std::string& resume) {
  Beginning beginning;
  try {
    beginning.directory = claimed_directory(config.output.dir);
    beginning.lease =
        take_lease({.run = beginning.directory,
                    .timing = {.raise_seconds = 0.5 * config.parallel.deadline_seconds},
                    .end = end_process});
    beginning.fence = beginning.lease->fence();
    beginning.start = decide_start(
        {.directory = beginning.directory, .resume = resume, .config = config, .steps = steps});
  } catch (const Error& error) {
    log_error(error.what());
    beginning.refused = error.code();
  }
  for (const std::string& note : beginning.start.notes) log_info(note);
  return beginning;
}

bool sees(const fs::path& path, const std::string& content) {
  const auto end = std::chrono::steady_clock::now() + longest_look;
  while (true) {
    std::ifstream file(path);
    std::string found;
    if (std::getline(file, found) && found == content) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// A file that rank 0 writes must be seen by all: a directory that is another one on each host
/// would hold a part of each checkpoint.
void check_shared(const fs::path& directory, World& world, Group& everyone) {
  if (world.local_size() == world.size()) return;
  const fs::path path = directory / "shared-directory-check";
  std::string token = world.host() + " " + std::to_string(::getpid());
  if (world.rank() == 0) write_whole_file(path, token + "\n");
  broadcast_bytes(everyone, token, 0);
  const std::vector<double> seen = gather_values(everyone, sees(path, token) ? 1.0 : 0.0);
  if (world.rank() == 0) fs::remove(path);
  std::string blind;
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    if (seen[rank] == 0) blind += (blind.empty() ? "" : ", ") + std::to_string(rank);
  }
  require(blind.empty(), ExitCode::io,
          "output.dir " + directory.string() + " is not the same directory on all hosts: rank(s) " +
              blind +
              " do not see the file that rank 0 wrote there; checkpoints need one that all "
              "hosts share");
}

}  // namespace

Beginning agree_on_beginning(const Config& config, std::int64_t steps, const std::string& resume,
                             World& world, Group& everyone) {
  Beginning beginning;
  while_others_wait(everyone, "output.dir", everyone.rank() == 0,
                    [&] { beginning = decide(config, steps, resume); });
  std::string text = to_text(beginning);
  broadcast_bytes(everyone, text, 0);
  from_text(text, beginning);
  const bool runs =
      beginning.refused == ExitCode::ok && beginning.start.kind != Start::Kind::finished;
  if (runs) check_shared(beginning.directory, world, everyone);
  return beginning;
}

Config config_to_go_on(Config config, const fs::path& directory) {
  config.output.dir = directory.string();
  config.output.overwrite = false;
  return config;
}

void enter_directory(const Beginning& beginning, const RunTexts& texts, Group& everyone) {
  while_others_wait(everyone, "output.dir", everyone.rank() == 0, [&] {
    const auto write = [&](const char* name, const std::string& text) {
      write_whole_file(beginning.directory / name, text, beginning.fence);
    };
    prepare_run_dir(beginning.directory, beginning.start, beginning.fence);
    write("config.yaml", texts.config);
    write("plan.json", texts.plan);
    if (!texts.layout.empty()) write(layout_file_name, texts.layout);
  });
  open_log_file(beginning.directory, everyone.rank(),
                beginning.start.kind == Start::Kind::resume ? LogFile::append : LogFile::replace);
}

}  // namespace trainctl
