#include "plan/prices/machine.h"

#include <algorithm>

#include "config/devices/figures.h"
#include "plan/prices/price_list.h"

namespace trainctl {

namespace {

/// Default levels: the ranks of a host, then all ranks.
NetworkLevels usual_levels(const DeviceFigures& device) {
  NetworkLevels levels;
  levels.resize(2);
  levels[0].name = "host";
  levels[0].ranks = device.host_ranks;
  levels[1].name = "network";
  return levels;
}

}  // namespace

std::vector<LinkLevel> levels_of(const ClusterConfig& cluster, const Machine& machine,
                                 std::int64_t world) {
  const DeviceFigures& device = machine.device;
  const bool usual = cluster.levels.empty();
  const NetworkLevels given = usual ? usual_levels(device) : cluster.levels;
  const SoftwareFigures& software = machine.software;
  std::vector<LinkLevel> levels;
  for (const NetworkLevel& one : given) {
    LinkLevel level;
    level.ranks = one.ranks > 0 ? std::min(one.ranks, world) : world;
    if (levels.empty()) {
      level.bandwidth = one.bandwidth.value_or(device.link) / one.oversubscription;
      level.latency = one.latency.value_or(device.link_latency);
    } else {
      // If all ranks of a host send at the same time, they share its links.
      const auto senders = static_cast<double>(levels.front().ranks);
      const auto links = static_cast<double>(one.links.value_or(device.network_links));
      level.bandwidth = one.bandwidth.value_or(device.network_bandwidth) / one.oversubscription *
                        std::min(1.0, links / senders) * software.network_share;
      level.latency = one.latency.value_or(device.network_latency) + software.network_latency;
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

namespace {

/// The ranks of the group, ascending.
std::vector<std::int64_t> members_of(const Mesh& mesh, GroupKind kind, std::int64_t ranks,
                                     std::int64_t rank) {
  std::vector<Axis> axes;
  for (const Axis axis : all_axes) {
    if (kind.has(axis)) axes.push_back(axis);
  }
  const std::vector<int> all = mesh.group(rank, axes);
  const auto size = static_cast<std::int64_t>(all.size());
  const bool apart = kind.part == GroupPart::mirror || kind.part == GroupPart::ring;
  const std::int64_t step = apart ? std::max<std::int64_t>(1, size / ranks) : 1;
  if (kind.part == GroupPart::ends) return {all.front(), all.back()};
  std::vector<std::int64_t> members;
  for (std::int64_t at = 0; at < size && std::ssize(members) < ranks; at += step) {
    members.push_back(all[static_cast<std::size_t>(at)]);
  }
  std::ranges::sort(members);
  return members;
}

std::int64_t blocks_touched(const std::vector<std::int64_t>& ascending, std::int64_t ranks) {
  std::int64_t blocks = 0, last = -1;
  for (const std::int64_t rank : ascending) {
    if (rank / ranks != last) ++blocks;
    last = rank / ranks;
  }
  return blocks;
}

}  // namespace

GroupSpan span_of(const Mesh& mesh, const std::vector<LinkLevel>& levels, GroupKind kind,
                  std::int64_t ranks, std::int64_t rank) {
  GroupSpan span;
  const bool whole = kind == world_group;
  const auto members = whole ? std::vector<std::int64_t>{} : members_of(mesh, kind, ranks, rank);
  std::int64_t below = whole ? mesh.world_size() : std::ssize(members);
  for (const LinkLevel& level : levels) {
    const std::int64_t here = whole ? (mesh.world_size() + level.ranks - 1) / level.ranks
                                    : blocks_touched(members, level.ranks);
    span.push_back(static_cast<double>(below) / static_cast<double>(here));
    below = here;
  }
  return span;
}

std::size_t joining_level(const std::vector<LinkLevel>& levels, std::int64_t one,
                          std::int64_t other) {
  for (std::size_t level = 0; level < levels.size(); ++level) {
    if (one / levels[level].ranks == other / levels[level].ranks) return level;
  }
  return levels.size() - 1;
}

}  // namespace trainctl
