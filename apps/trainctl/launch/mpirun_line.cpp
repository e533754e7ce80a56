#include "launch/mpirun_line.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "execute.h"

namespace trainctl {

namespace {

/// The one beside this program, as in a bundle, else the one in PATH.
std::string mpirun_program() {
  const std::filesystem::path beside = std::filesystem::path(own_path()).parent_path() / "mpirun";
  return std::filesystem::exists(beside) ? beside.string() : "mpirun";
}

/// Variables that ranks on other machines need as they are here. Open MPI passes its own settings
/// on by itself.
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
    // Without it, more ranks than cores are refused; with a host file, its slots decide.
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

}  // namespace

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

Arguments mpirun_line(const LaunchRequest& request, Launcher launcher, bool several) {
  return launcher == Launcher::hydra ? hydra_line(request, several)
                                     : open_mpi_line(request, launcher, several);
}

std::string default_host_file(Launcher launcher) {
  if (launcher == Launcher::hydra) return "";
  const char* name = launcher == Launcher::open_mpi_5 ? "PRTE_MCA_prte_default_hostfile"
                                                      : "OMPI_MCA_orte_default_hostfile";
  const char* path = std::getenv(name);
  return path == nullptr ? "" : path;
}

std::vector<std::pair<std::string, std::string>> settings_of_hosts(Launcher launcher,
                                                                   const std::string& subnet) {
  std::vector<std::pair<std::string, std::string>> settings;
  if (launcher == Launcher::hydra) return settings;
  const auto set = [&](const std::string& name, const std::string& value) {
    if (std::getenv(name.c_str()) == nullptr) settings.emplace_back(name, value);
  };
  // Without them the connection to a lost host stays for a quarter of an hour; with them 11 s.
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

}  // namespace trainctl
