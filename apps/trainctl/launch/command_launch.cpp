// trainctl launch: detects the installed mpirun, builds the command line that it needs on this
// machine, shows it and runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "base/log.h"
#include "commands.h"
#include "config/schema/most_ranks.h"
#include "execute.h"
#include "launch/hosts.h"
#include "launch/job.h"
#include "launch/mpirun_line.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* launch_examples =
    "  trainctl launch -n 8 -- train --config configs/gpt.yaml\n"
    "  trainctl launch -n 8 --dry-run -- train --config configs/gpt.yaml\n"
    "  trainctl launch -n 16 --hostfile hosts.txt -- train --config configs/gpt.yaml\n"
    "  trainctl launch --hostfile hosts.txt --export MY_PATH -- train --config configs/gpt.yaml\n";

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

/// Of the host file that was given; of a batch system; of Open MPI's settings.
Hosts hosts_of(const LaunchRequest& request, Launcher launcher) {
  if (!request.hostfile.empty()) return read_host_file(request.hostfile);
  if (const auto allocated = allocated_hosts()) return *allocated;
  const std::string file = default_host_file(launcher);
  return file.empty() ? Hosts{} : read_host_file(file);
}

std::int64_t ranks_of(const Hosts& hosts, const CommandLine& line) {
  if (hosts.slots > 0) return hosts.slots;
  if (hosts.source.empty()) line.refuse("the number of ranks is missing: -n N");
  line.refuse("the number of ranks is missing: " + hosts.source +
              " does not say how many each host takes; use -n N");
}

std::string new_id() {
  std::random_device random;
  const auto id = std::uint64_t{random()} << 32 | random();
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(id));
  return text;
}

/// The command with the variables that it needs, for a shell.
std::string line_with(const std::vector<std::pair<std::string, std::string>>& settings,
                      const Arguments& line) {
  Arguments words;
  if (!settings.empty()) words.emplace_back("env");
  for (const auto& [name, value] : settings) words.push_back(name + "=" + value);
  words.insert(words.end(), line.begin(), line.end());
  return shell_line(words);
}

bool asks_for_help(const Arguments& command) {
  return std::ranges::any_of(
      command, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

}  // namespace

int run_launch(const Arguments& arguments) {
  CommandLine command_line(
      "Starts 'train' over MPI. Everything after '--' is the command to start. The exit code is 0 "
      "only if rank 0 says that the run has ended as it should.",
      "trainctl launch");
  LaunchRequest request;
  std::int64_t start_seconds = 120;
  bool dry_run = false;
  command_line.add_whole_number("-n,--ranks", request.ranks,
                                "Number of ranks; without it those of the host file or of the "
                                "batch system's allocation",
                                1, most_ranks);
  command_line.add_text("--hostfile", request.hostfile,
                        "Machines to use, one 'name slots=N' per line", "FILE");
  command_line.add_repeated("--export", request.exported,
                            "A variable that ranks on other hosts need; repeatable", "NAME");
  command_line.add_whole_number("--start-seconds", start_seconds,
                                "Longest wait for the first rank to begin", 1, 86'400);
  command_line.add_flag("--dry-run", dry_run, "Print the mpirun command and exit");
  const auto split = std::find(arguments.begin(), arguments.end(), "--");
  const auto started = std::find(arguments.begin(), split, "train");
  const bool is_value =
      started != arguments.begin() && started != split && (*(started - 1)).starts_with("--");
  if (started != split && !is_value) {
    command_line.refuse("the command to start follows '--'; did you mean '-- " +
                        shell_line(Arguments(started, split)) + "'?");
  }
  if (!command_line.parse(Arguments(arguments.begin(), split), launch_examples)) return 0;
  const Arguments command =
      started_command(Arguments(split == arguments.end() ? split : split + 1, arguments.end()));
  if (asks_for_help(command)) return run_command(command);
  for (const std::string& name : request.exported) {
    if (std::getenv(name.c_str()) == nullptr) {
      command_line.refuse("--export " + name + ": there is no such variable here");
    }
  }

  const Launcher launcher = installed_launcher();
  const Hosts hosts = hosts_of(request, launcher);
  if (request.ranks == 0) request.ranks = ranks_of(hosts, command_line);
  request.allocated = request.hostfile.empty() && !hosts.source.empty();
  std::vector<std::pair<std::string, std::string>> settings;
  if (hosts.several) {
    const std::string subnet = shared_subnet(hosts.names).value_or("");
    settings = settings_of_hosts(launcher, subnet);
    if (!dry_run && !subnet.empty()) log_info("the hosts share the network " + subnet);
  }
  const std::string id = new_id();
  if (!dry_run) setenv("TRAINCTL_LAUNCH", id.c_str(), 1);
  Arguments line = mpirun_line(request, launcher, hosts.several);
  line.push_back(own_path());
  line.insert(line.end(), command.begin(), command.end());
  if (dry_run) {
    print(line_with(settings, line) + "\n");
    return 0;
  }
  log_info(line_with(settings, line));
  for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
  return run_job({.line = line,
                  .id = id,
                  .ranks = request.ranks,
                  .hosts = hosts.names,
                  .start_seconds = static_cast<double>(start_seconds)});
}

}  // namespace trainctl
