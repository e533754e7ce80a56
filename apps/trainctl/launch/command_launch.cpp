// trainctl launch: detects the installed mpirun, builds the command line that it needs on this
// machine, shows it and runs it.

#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/this_host.h"
#include "comm/world.h"
#include "commands.h"
#include "config/schema/parallel_config.h"
#include "formats/print/text.h"
#include "launch/job.h"
#include "output.h"

namespace trainctl {

// The hosts of a job, as a host file or a batch system gives them, and the network that they share.

namespace {

struct Hosts {
  std::vector<std::string> names{};  // each once; empty if unknown or only this host
  std::int64_t slots = 0;            // ranks on all hosts together; 0 unless given for each
  bool several = false;
  std::string source{};  // "the host file hosts.txt", "the allocation of Slurm"; "" if none
};

/// The whole number from 1 on in `text`; 0 for any other text.
std::int64_t count_in(const std::string& text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && value >= 1 && value <= max_ranks ? value
                                                                                           : 0;
}

void add_name(Hosts& hosts, const std::string& name) {
  if (std::ranges::find(hosts.names, name) == hosts.names.end()) hosts.names.push_back(name);
  hosts.several = hosts.names.size() > 1;
}

/// The line without its comment, and with "slots = 2" as "slots=2".
std::string plain_line(std::string line) {
  line.erase(std::min(line.find('#'), line.size()));
  for (std::size_t place = line.find('='); place != std::string::npos;
       place = line.find('=', place + 1)) {
    while (place > 0 && line[place - 1] == ' ') line.erase(--place, 1);
    while (place + 1 < line.size() && line[place + 1] == ' ') line.erase(place + 1, 1);
  }
  return line;
}

/// The sum in Slurm's tasks per node, 7 for "2(x3),1"; 0 for a text of another form.
std::int64_t sum_of_tasks(const std::string& per_node) {
  std::int64_t sum = 0;
  std::istringstream parts(per_node);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t times = part.find("(x");
    const std::int64_t tasks = count_in(part.substr(0, times));
    const std::int64_t nodes = times == std::string::npos
                                   ? 1
                                   : count_in(part.substr(times + 2, part.find(')') - times - 2));
    if (tasks == 0 || nodes == 0) return 0;
    sum += tasks * nodes;
  }
  return sum;
}

Hosts allocation_of_slurm() {
  Hosts hosts{.source = "the allocation of Slurm"};
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  hosts.slots = sum_of_tasks(variable("SLURM_TASKS_PER_NODE"));
  const std::string nodes = variable("SLURM_JOB_NODELIST");
  if (nodes.find('[') == std::string::npos && nodes.find(',') == std::string::npos) {
    if (!nodes.empty()) add_name(hosts, nodes);
  } else {
    std::istringstream names(output_of("scontrol", {"show", "hostnames", nodes}));
    for (std::string name; names >> name;) add_name(hosts, name);
    hosts.several = true;
  }
  return hosts;
}

/// Reads the nodes of PBS: one line for each slot.
Hosts allocation_of_pbs(const std::string& path) {
  Hosts hosts{.source = "the allocation of PBS"};
  std::ifstream file(path);
  for (std::string name; file >> name; ++hosts.slots) add_name(hosts, name);
  return hosts;
}

/// The IPv4 addresses of a name.
std::vector<std::uint32_t> addresses_of(const std::string& name) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  std::vector<std::uint32_t> found;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &first) != 0) return found;
  for (const addrinfo* one = first; one != nullptr; one = one->ai_next) {
    sockaddr_in address{};
    std::memcpy(&address, one->ai_addr, sizeof address);
    found.push_back(ntohl(address.sin_addr.s_addr));
  }
  freeaddrinfo(first);
  return found;
}

/// Whether these are addresses of this host, whose own name often leads to 127.0.1.1.
bool is_here(const std::vector<std::uint32_t>& addresses, const std::vector<Interface>& own) {
  return std::ranges::any_of(addresses, [&](std::uint32_t address) {
    return address >> 24 == 127 ||
           std::ranges::find(own, address, &Interface::address) != own.end();
  });
}

/// Reads a host file: one 'name slots=N' per line, as for Open MPI, or 'name:N', as for MPICH.
/// Throws Error{missing_input}, or Error{bad_data} with the line.
Hosts read_host_file(const std::string& path) {
  std::ifstream file(path);
  require(file.is_open(), ExitCode::missing_input, "cannot read the host file " + path);
  Hosts hosts{.source = "the host file " + path};
  bool all_given = true;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(plain_line(line));
    std::string name;
    if (!(words >> name)) continue;
    std::string slots;
    for (std::string word; words >> word;) {
      if (word.starts_with("slots=")) slots = word.substr(6);
    }
    const std::size_t colon = name.find(':');
    if (colon != std::string::npos) slots = name.substr(colon + 1);
    name = name.substr(0, colon);
    add_name(hosts, name.substr(name.find('@') + 1));
    const std::int64_t count = count_in(slots);
    require(slots.empty() || count > 0, ExitCode::bad_data,
            formatted("{}:{}: the slots of a host are a number from 1 to {}, not '{}'", path,
                      number, max_ranks, slots));
    all_given = all_given && count > 0;
    hosts.slots += count;
  }
  require(!hosts.names.empty(), ExitCode::bad_data, "the host file " + path + " names no host");
  if (!all_given) hosts.slots = 0;
  return hosts;
}

/// The hosts that a batch system has allocated to this process; nothing without a batch system.
std::optional<Hosts> allocated_hosts() {
  if (std::getenv("SLURM_JOB_ID") != nullptr) return allocation_of_slurm();
  const char* nodes = std::getenv("PBS_NODEFILE");
  if (nodes != nullptr) return allocation_of_pbs(nodes);
  if (std::getenv("PBS_JOBID") != nullptr) return Hosts{.source = "the allocation of PBS"};
  return std::nullopt;
}

/// The subnet that holds an address of every host, "10.77.0.0/24", if there is exactly one. It is a
/// subnet of this host; names are resolved by the system.
std::optional<std::string> shared_subnet(const std::vector<std::string>& names) {
  const std::vector<Interface> own = interfaces();
  std::vector<std::string> shared;
  for (const Interface& one : own) {
    if (!one.loopback && std::ranges::find(shared, one.subnet()) == shared.end()) {
      shared.push_back(one.subnet());
    }
  }
  for (const std::string& name : names) {
    const std::vector<std::uint32_t> addresses = addresses_of(name);
    if (name == host_name() || is_here(addresses, own)) continue;
    std::erase_if(shared, [&](const std::string& subnet) {
      const auto net = std::ranges::find(own, subnet, &Interface::subnet);
      return std::ranges::none_of(addresses,
                                  [&](std::uint32_t address) { return net->holds(address); });
    });
  }
  return shared.size() == 1 ? std::optional(shared.front()) : std::nullopt;
}

}  // namespace

// The mpirun that is installed here, and the command line and settings that it needs.

namespace {

enum class Launcher { open_mpi_4, open_mpi_5, hydra };

struct LaunchRequest {
  std::int64_t ranks = 0;
  std::string hostfile;
  std::vector<std::string> exported;  // names of variables
  bool allocated = false;             // a batch system decides where ranks run
};

/// The mpirun in the folder of this program, as in a bundle, else the one in PATH.
std::string mpirun_program() {
  const std::filesystem::path beside = std::filesystem::path(own_path()).parent_path() / "mpirun";
  return std::filesystem::exists(beside) ? beside.string() : "mpirun";
}

/// Variables that ranks on other machines need with the values from here. Open MPI itself passes
/// its own settings on.
constexpr std::array<std::string_view, 8> exported_prefixes = {
    "OMP_", "DNNL_", "ONEDNN_", "NCCL_", "CUDA_", "UCX_", "FI_", "TRAINCTL_"};
constexpr std::array<std::string_view, 4> exported_names = {"LD_LIBRARY_PATH", "NO_COLOR",
                                                            "HF_HOME", "XDG_CACHE_HOME"};

std::vector<std::string> exported_variables(const LaunchRequest& request, bool several) {
  std::vector<std::string> names = request.exported;
  for (char** entry = environ; several && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    const bool wanted = std::ranges::find(exported_names, name) != exported_names.end() ||
                        std::ranges::any_of(exported_prefixes,
                                            [&](auto prefix) { return name.starts_with(prefix); });
    if (wanted) names.push_back(name);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void append(Arguments& line, std::initializer_list<std::string> words) {
  line.insert(line.end(), words);
}

Arguments open_mpi_line(const LaunchRequest& request, Launcher launcher, bool several) {
  Arguments line = {mpirun_program(), "-n", std::to_string(request.ranks)};
  if (geteuid() == 0) append(line, {"--allow-run-as-root"});
  if (!request.hostfile.empty()) {
    append(line, {"--hostfile", request.hostfile});
  } else if (!request.allocated) {
    // Without this option, more ranks than cores are refused; with a host file, its slots decide.
    if (launcher == Launcher::open_mpi_5) append(line, {"--map-by", ":OVERSUBSCRIBE"});
    if (launcher == Launcher::open_mpi_4) append(line, {"--oversubscribe"});
  }
  // By default, each of two ranks is bound to one core, even if it runs more threads.
  append(line, {"--bind-to", "none"});
  for (const std::string& name : exported_variables(request, several)) append(line, {"-x", name});
  return line;
}

Arguments hydra_line(const LaunchRequest& request, bool several) {
  Arguments line = {mpirun_program(), "-n", std::to_string(request.ranks)};
  if (!request.hostfile.empty()) append(line, {"-f", request.hostfile});
  append(line, {"-bind-to", "none"});
  for (const std::string& name : exported_variables(request, several)) {
    append(line, {"-genv", name, std::getenv(name.c_str())});
  }
  return line;
}

/// Throws Error{unavailable} if no mpirun is installed, or an unknown one.
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

/// mpirun and its options, without the program to start. `several`: ranks may be on other hosts.
Arguments mpirun_line(const LaunchRequest& request, Launcher launcher, bool several) {
  return launcher == Launcher::hydra ? hydra_line(request, several)
                                     : open_mpi_line(request, launcher, several);
}

/// The default host file of the user's settings for Open MPI; "" if there is none.
std::string default_host_file(Launcher launcher) {
  if (launcher == Launcher::hydra) return "";
  const char* name = launcher == Launcher::open_mpi_5 ? "PRTE_MCA_prte_default_hostfile"
                                                      : "OMPI_MCA_orte_default_hostfile";
  const char* path = std::getenv(name);
  return path == nullptr ? "" : path;
}

/// Variables for mpirun where ranks are on several hosts: settings to notice a lost host soon, and
/// the subnet that all share ("" unless there is exactly one). Variables that the user has set are
/// left out.
std::vector<std::pair<std::string, std::string>> settings_of_hosts(Launcher launcher,
                                                                   const std::string& subnet) {
  std::vector<std::pair<std::string, std::string>> settings;
  if (launcher == Launcher::hydra) return settings;
  const auto set = [&](const std::string& name, const std::string& value) {
    if (std::getenv(name.c_str()) == nullptr) settings.emplace_back(name, value);
  };
  // Without these, the connection to a lost host stays for a quarter of an hour instead of 11 s.
  const bool open_mpi_5 = launcher == Launcher::open_mpi_5;
  const std::string of_daemons = open_mpi_5 ? "PRTE_MCA_" : "OMPI_MCA_";
  set(of_daemons + "oob_tcp_keepalive_time", "5");
  set(of_daemons + "oob_tcp_keepalive_intvl", "2");
  set(of_daemons + "oob_tcp_keepalive_probes", "3");
  if (subnet.empty()) return settings;
  const bool excludes = std::getenv("OMPI_MCA_btl_tcp_if_exclude") != nullptr;
  if (!excludes) set("OMPI_MCA_btl_tcp_if_include", subnet);
  const std::string network = open_mpi_5 ? "PRTE_MCA_prte_if_" : "OMPI_MCA_oob_tcp_if_";
  if (std::getenv((network + "exclude").c_str()) == nullptr) set(network + "include", subnet);
  return settings;
}

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

/// The hosts of the host file that was given, else of a batch system, else of Open MPI's settings.
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
  return hex_text(std::uint64_t{random()} << 32 | random());
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
  double start_seconds = 120;
  bool dry_run = false;
  command_line.add_whole_number("-n,--ranks", request.ranks,
                                "Number of ranks; without it those of the host file or of the "
                                "batch system's allocation",
                                1, max_ranks);
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
  return run_job(line, id, request.ranks, hosts.names, start_seconds);
}

}  // namespace trainctl
