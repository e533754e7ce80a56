#include "plan/prices/machine.h"

#include <algorithm>

#include "config/devices/figures.h"
#include "plan/prices/price_list.h"

namespace trainctl {

namespace {

/// The ranks of a host, then all.
NetworkLevels usual_levels(const DeviceFigures& device) {
  NetworkLevels levels;
  levels.list.resize(2);
  levels.list[0].name = "host";
  levels.list[0].ranks = device.host_ranks;
  levels.list[1].name = "network";
  return levels;
}

}  // namespace

std::vector<LinkLevel> levels_of(const ClusterConfig& cluster, const Machine& machine,
                                 std::int64_t world) {
  const DeviceFigures& device = machine.device;
  const bool usual = cluster.levels.list.empty();
  const NetworkLevels given = usual ? usual_levels(device) : cluster.levels;
  const SoftwareFigures& software = machine.software;
  std::vector<LinkLevel> levels;
  for (const NetworkLevel& one : given.list) {
    LinkLevel level;
    level.ranks = one.ranks > 0 ? std::min(one.ranks, world) : world;
    if (levels.empty()) {
      level.bandwidth = one.bandwidth.value_or(device.link) / one.oversubscription;
      level.latency = one.latency.value_or(device.link_latency);
    } else {
      // While all ranks of a host send, they share its links.
      const auto senders = static_cast<double>(levels.front().ranks);
      const auto links = static_cast<double>(one.links.value_or(device.network.links));
      level.bandwidth = one.bandwidth.value_or(device.network.bandwidth) / one.oversubscription *
                        std::min(1.0, links / senders) * software.network_share;
      level.latency = one.latency.value_or(device.network.latency) + software.network_latency;
    }
    levels.push_back(level);
  }
  if (levels.back().ranks < world) levels.back().ranks = world;
  return levels;
}

std::optional<Machine> machine_of(const ClusterConfig& cluster, std::int64_t world) {
  const std::string_view device = device_text(cluster);
  const std::string_view software = software_text(cluster);
  if (device.empty() || software.empty()) return std::nullopt;
  Diagnostics mistakes;
  Machine machine;
  machine.device = read_device(device, *cluster.device, mistakes);
  machine.software = read_software(software, cluster.software, mistakes);
  if (mistakes.has_errors()) return std::nullopt;
  machine.levels = levels_of(cluster, machine, world);
  compare_table(machine);
  return machine;
}

}  // namespace trainctl
