// trainctl launch: detects the installed mpirun, builds the command line that it needs on this
// machine, shows it and runs it.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "commands.h"
#include "execute.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* launch_examples =
    "  trainctl launch -n 8 -- train --config configs/gpt.yaml\n"
    "  trainctl launch -n 8 --dry-run -- train --config configs/gpt.yaml\n"
    "  trainctl launch -n 16 --hostfile hosts.txt -- train --config configs/gpt.yaml\n";

enum class Launcher { open_mpi_4, open_mpi_5, hydra };

struct LaunchRequest {
  std::int64_t ranks = 0;
  std::string hostfile;
};

/// The one beside this program, as in a bundle, else the one in PATH.
std::string mpirun_program() {
  const std::filesystem::path beside = std::filesystem::path(own_path()).parent_path() / "mpirun";
  return std::filesystem::exists(beside) ? beside.string() : "mpirun";
}

Launcher installed_launcher() {
  const std::string version = output_of(mpirun_program(), {"--version"});
  require(!version.empty(), ExitCode::unavailable,
          "mpirun is not installed: install the package openmpi-bin, or use "
          "'trainctl train --local-ranks N' on one machine");
  const std::string_view mark = "(Open MPI) ";
  const std::size_t place = version.find(mark);
  if (place != std::string::npos) {
    const int major = std::atoi(version.c_str() + place + mark.size());
    return major >= 5 ? Launcher::open_mpi_5 : Launcher::open_mpi_4;
  }
  if (version.find("HYDRA") != std::string::npos ||
      version.find("Intel(R) MPI") != std::string::npos)
    return Launcher::hydra;
  throw Error(ExitCode::unavailable,
              "mpirun is neither Open MPI nor MPICH: 'mpirun --version' says '" +
                  version.substr(0, version.find('\n')) + "'");
}

/// Whether a batch system has already decided how many ranks fit where.
bool has_allocation() {
  return std::getenv("SLURM_JOB_ID") != nullptr || std::getenv("PBS_JOBID") != nullptr;
}

/// Variables to pass to ranks on other machines.
std::vector<std::string> exported_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    const bool wanted = name.starts_with("OMP_") || name.starts_with("DNNL_") ||
                        name.starts_with("ONEDNN_") || name.starts_with("NCCL_") ||
                        name == "CUDA_VISIBLE_DEVICES" || name == "LD_LIBRARY_PATH" ||
                        name == "NO_COLOR";
    if (wanted) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void append(Arguments& line, std::initializer_list<std::string> words) {
  line.insert(line.end(), words);
}

Arguments open_mpi_line(const LaunchRequest& request, Launcher launcher) {
  Arguments line = {mpirun_program(), "-n", std::to_string(request.ranks)};
  if (geteuid() == 0) append(line, {"--allow-run-as-root"});
  if (!request.hostfile.empty()) {
    append(line, {"--hostfile", request.hostfile});
  } else if (!has_allocation()) {
    // Without it, more ranks than cores are refused; with a host file, its slots decide.
    if (launcher == Launcher::open_mpi_5) append(line, {"--map-by", ":OVERSUBSCRIBE"});
    if (launcher == Launcher::open_mpi_4) append(line, {"--oversubscribe"});
  }
  // By default, each of two ranks is bound to one core, even if it runs more threads.
  append(line, {"--bind-to", "none"});
  if (!request.hostfile.empty()) {
    for (const std::string& name : exported_variables()) append(line, {"-x", name});
  }
  return line;
}

Arguments hydra_line(const LaunchRequest& request) {
  Arguments line = {mpirun_program(), "-n", std::to_string(request.ranks)};
  if (!request.hostfile.empty()) append(line, {"-f", request.hostfile});
  append(line, {"-bind-to", "none"});
  if (!request.hostfile.empty()) {
    for (const std::string& name : exported_variables()) {
      append(line, {"-genv", name, std::getenv(name.c_str())});
    }
  }
  return line;
}

/// The words after "--": a train command, with or without the program's name.
Arguments started_command(Arguments after) {
  const std::string self = "trainctl launch";
  if (!after.empty() && std::filesystem::path(after.front()).filename() == "trainctl") {
    after.erase(after.begin());
  }
  if (after.empty())
    refuse(self, "no command to start; end the line with '-- train --config FILE'");
  if (after.front() != "train") refuse_word(self, "command", after.front(), {"train"});
  for (const std::string& word : after) {
    if (word.starts_with("--local-ranks")) {
      refuse(self, "--local-ranks starts ranks too; use either launch or --local-ranks");
    }
  }
  return after;
}

}  // namespace

int run_launch(const Arguments& arguments) {
  CommandLine command_line(
      "Starts 'train' over MPI. Everything after '--' is the command to start.", "trainctl launch");
  LaunchRequest request;
  bool dry_run = false;
  command_line.add_whole_number("-n,--ranks", request.ranks, "Number of ranks", 1, 1'000'000);
  command_line.require("--ranks");
  command_line.add_text("--hostfile", request.hostfile,
                        "Machines to use, one 'name slots=N' per line", "FILE");
  command_line.add_flag("--dry-run", dry_run, "Print the mpirun command and exit");
  const auto split = std::find(arguments.begin(), arguments.end(), "--");
  const auto started = std::find(arguments.begin(), split, "train");
  if (started != split && (started == arguments.begin() || *(started - 1) != "--hostfile")) {
    refuse("trainctl launch", "the command to start follows '--'; did you mean '-- " +
                                  shell_line(Arguments(started, split)) + "'?");
  }
  if (!command_line.parse(Arguments(arguments.begin(), split), launch_examples)) return 0;
  const Arguments command =
      started_command(Arguments(split == arguments.end() ? split : split + 1, arguments.end()));
  require(request.hostfile.empty() || std::ifstream(request.hostfile).is_open(),
          ExitCode::missing_input, "cannot read the host file " + request.hostfile);

  const Launcher launcher = installed_launcher();
  Arguments line =
      launcher == Launcher::hydra ? hydra_line(request) : open_mpi_line(request, launcher);
  line.push_back(own_path());
  line.insert(line.end(), command.begin(), command.end());
  if (dry_run) {
    print(shell_line(line) + "\n");
    return 0;
  }
  log_info(shell_line(line));
  return run_mpirun(line.front(), Arguments(line.begin() + 1, line.end()));
}

}  // namespace trainctl
