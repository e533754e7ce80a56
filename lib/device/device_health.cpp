#include "device/device_health.h"

#include <vector>

namespace trainctl {

namespace {

std::vector<DeviceHealth*>& of_thread() {
  static thread_local std::vector<DeviceHealth*> all;
  return all;
}

}  // namespace

DeviceHealth::DeviceHealth() { of_thread().push_back(this); }

DeviceHealth::~DeviceHealth() { std::erase(of_thread(), this); }

bool checks_devices() { return !of_thread().empty(); }

void check_devices() {
  for (DeviceHealth* health : of_thread()) health->check();
}

void abandon_devices() noexcept {
  for (DeviceHealth* health : of_thread()) health->abandon();
}

std::string open_device_work() {
  std::string text;
  for (DeviceHealth* health : of_thread()) {
    const std::string open = health->open_work();
    if (!open.empty()) text += "; under way: " + open;
  }
  return text;
}

}  // namespace trainctl
