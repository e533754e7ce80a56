#include "comm/nccl/device_world.h"

#include <cstdlib>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "comm/nccl/device_group.h"
#include "comm/nccl/nccl_wires.h"
#include "comm/nccl/shared_device.h"
#include "comm/nccl/staged_group.h"
#include "device/cuda_device.h"

namespace trainctl {

namespace {

const char* name_of(Lane lane) {
  switch (lane) {
    case Lane::layers: return "layers";
    case Lane::experts: return "experts";
    case Lane::gradients: return "gradients";
  }
  return "";
}

/// Why the ranks cannot all use NCCL; "" if they can. Collective.
std::string why_no_nccl(World& world) {
  const auto everyone = world.everyone("wires");
  const auto missing = gather_bytes(*everyone, nccl_module().missing(), 0);
  std::string why;
  for (std::size_t rank = 0; rank < missing.size() && why.empty(); ++rank) {
    if (missing[rank].empty()) continue;
    why = "rank " + std::to_string(rank) + " has no NCCL (" + missing[rank] + ")";
  }
  broadcast_bytes(*everyone, why, 0);
  return why;
}

/// Prepares NCCL for ranks that share a device, each of which is a process.
void share_over_nccl(const World& world, const std::string& why_no_nccl) {
  std::string why = why_no_nccl;
  if (world.in_one_process()) {
    why = "the ranks are threads of one process, and NCCL knows a process by one name";
  }
  require(why.empty(), ExitCode::unavailable,
          "ranks cannot share a device over NCCL (parallel.share_devices: nccl): " + why +
              "; set share_devices to true");
  for (const EnvironmentEntry& one :
       environment_to_share(nccl_module().version(), world.host(), world.rank())) {
    setenv(one.name.c_str(), one.value.c_str(), 0);
  }
}

}  // namespace

DeviceWorld::DeviceWorld(World& world, DeviceKind device, double deadline_seconds,
                         DeviceSharing sharing)
    : world_(world), device_(device), deadline_seconds_(deadline_seconds) {
  if (device == DeviceKind::cuda) cuda_select_device(world.local_rank(), shares(sharing));
  if (device == DeviceKind::cpu || world.size() == 1) return;
  const bool without_nccl = sharing == DeviceSharing::without_nccl;
  on_one_device_ = without_nccl && world.in_one_process() && cuda_module().device_count() == 1;
  if (on_one_device_) return;
  const std::string why = without_nccl ? "ranks share CUDA devices" : why_no_nccl(world);
  if (sharing == DeviceSharing::nccl) share_over_nccl(world, why);
  staged_ = !why.empty();
  if (staged_ && world.rank() == 0) {
    log_warning(why + ": tensors travel through the host's memory, which is slow");
  }
  if (!staged_) wires_ = std::make_unique<NcclWires>(world, deadline_seconds);
}

DeviceWorld::~DeviceWorld() = default;

std::string DeviceWorld::host_part() const {
  if (on_one_device_) return "ranks share a device, and meet on the host";
  return staged_ ? "tensors travel through the host's memory" : "";
}

std::unique_ptr<Group> DeviceWorld::group(const std::string& name, std::span<const int> ranks,
                                          WireUse use) const {
  auto host = world_.group(name, ranks);
  if (host->size() == 1) return host;
  if (staged_) return std::make_unique<StagedGroup>(std::move(host), deadline_seconds_);
  if (wires_ == nullptr) return host;
  const WireSpec spec{.lane = name_of(use.lane),
                      .ranks = {ranks.begin(), ranks.end()},
                      .exchanges = use.carries == Carries::all};
  const bool collectives = use.carries != Carries::messages;
  return std::make_unique<DeviceGroup>(std::move(host), *wires_, spec, collectives,
                                       world_.traffic());
}

std::unique_ptr<Group> DeviceWorld::everyone(const std::string& name) const {
  std::vector<int> ranks(static_cast<std::size_t>(world_.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group(name, ranks);
}

void DeviceWorld::open() const {
  if (wires_ != nullptr) wires_->open();
}

}  // namespace trainctl
