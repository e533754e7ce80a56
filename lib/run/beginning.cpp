#include "run/beginning.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "comm/group.h"
#include "comm/values.h"
#include "run/search/layout_choice.h"

namespace trainctl {

// The members of Beginning that rank 0 sends to the other ranks; it keeps notes and the lease.
constexpr auto members_of(const Start*) {
  return std::tuple(&Start::kind, &Start::earlier, &Start::checkpoint, &Start::step,
                    &Start::has_weights);
}
constexpr auto members_of(const Fence*) { return std::tuple(&Fence::session); }
constexpr auto members_of(const Beginning*) {
  return std::tuple(&Beginning::directory, &Beginning::start, &Beginning::fence,
                    &Beginning::refused);
}

namespace {

namespace fs = std::filesystem;

// Time that a new directory entry may take to reach other hosts.
constexpr auto longest_look = std::chrono::seconds(10);

/// Creates the directory if the pattern has {n}, since another run may choose the same number now.
fs::path claimed_directory(const std::string& pattern) {
  while (true) {
    const fs::path path = output_directory(pattern);
    if (pattern.find("{n}") == std::string::npos) return path;
    std::error_code failure;
    fs::create_directories(path.parent_path(), failure);
    if (fs::create_directory(path, failure) || failure) return path;
  }
}

/// Ends a process that has lost its run to another start and must stop writing.
void end_process() { end_suddenly(ExitCode::taken); }

Beginning decide(const Config& config, std::int64_t steps, const std::string& resume) {
  Beginning beginning;
  try {
    beginning.directory = claimed_directory(config.output.dir);
    beginning.lease = take_lease({.run = beginning.directory,
                                  .raise_seconds = 0.5 * config.parallel.deadline_seconds,
                                  .end = end_process});
    beginning.fence = beginning.lease->fence();
    beginning.start = decide_start(beginning.directory, resume, config, steps);
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

/// Checks that all ranks see a file that rank 0 writes: if each host had a directory of its own,
/// each would hold only a part of every checkpoint.
void check_shared(const fs::path& directory, World& world, Group& everyone) {
  if (world.local_size() == world.size()) return;
  const fs::path path = directory / "shared-directory-check";
  std::string token = world.host() + " " + std::to_string(::getpid());
  if (world.rank() == 0) write_whole_file(path, token + "\n");
  broadcast(everyone, token);
  const std::vector<bool> seen = gather_all(everyone, sees(path, token));
  if (world.rank() == 0) fs::remove(path);
  std::string blind;
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    if (!seen[rank]) blind += (blind.empty() ? "" : ", ") + std::to_string(rank);
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
  broadcast(everyone, beginning);
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

void enter_directory(const Beginning& beginning, const std::string& config, const std::string& plan,
                     const std::string& layout, Group& everyone) {
  while_others_wait(everyone, "output.dir", everyone.rank() == 0, [&] {
    const auto write = [&](const char* name, const std::string& text) {
      write_whole_file(beginning.directory / name, text, beginning.fence);
    };
    prepare_run_dir(beginning.directory, beginning.start, beginning.fence);
    write("config.yaml", config);
    write("plan.json", plan);
    if (!layout.empty()) write(layout_file_name, layout);
  });
  open_log_file(beginning.directory, everyone.rank(), beginning.start.kind == Start::Kind::resume);
}

}  // namespace trainctl
