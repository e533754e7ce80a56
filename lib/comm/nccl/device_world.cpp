#include "comm/nccl/device_world.h"

#include <numeric>
#include <vector>

#include "comm/nccl/device_group.h"
#include "comm/nccl/nccl_wires.h"

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

}  // namespace

DeviceWorld::DeviceWorld(World& world, DeviceKind device, double deadline_seconds)
    : world_(world), device_(device) {
  if (device == DeviceKind::cpu || world.size() == 1) return;
  wires_ = std::make_unique<NcclWires>(world, deadline_seconds);
}

DeviceWorld::~DeviceWorld() = default;

std::unique_ptr<Group> DeviceWorld::group(const std::string& name, std::span<const int> ranks,
                                          WireUse use) const {
  auto host = world_.group(name, ranks);
  if (wires_ == nullptr || host->size() == 1) return host;
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
