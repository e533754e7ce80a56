#include "ops/kernels.h"

#include "device/cuda_device.h"
#include "ops/cpu_level.h"
#include "ops/kernel_entries.h"

namespace trainctl {

// The kernels of the CUDA module, a shared library that is opened when they are first used.

namespace {

/// Throws Error{unavailable} if the module is missing or cannot be opened.
const Kernels& cuda_module_kernels() {
  return *static_cast<const Kernels*>(cuda_module_part("trainctl_cuda_kernels", sizeof(Kernels)));
}

const Kernels* replacement = nullptr;
}  // namespace

const Kernels& cpu_kernels() { return kernels_of(cpu_level()); }

const Kernels& own_kernels(DeviceKind device) {
  return device == DeviceKind::cuda ? cuda_module_kernels() : cpu_kernels();
}

const Kernels& kernels_for(DeviceKind device) {
  return replacement != nullptr ? *replacement : own_kernels(device);
}

void replace_kernels(const Kernels* kernels) { replacement = kernels; }

std::vector<std::string_view> missing_kernels(const Kernels& kernels) {
  std::vector<std::string_view> missing;
  each_kernel([&](auto entry, std::string_view name) {
    if (kernels.*(entry.value) == nullptr) missing.push_back(name);
  });
  return missing;
}

}  // namespace trainctl
