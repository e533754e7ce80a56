#include "ops/kernels.h"

#include "ops/cpu_tables.h"
#include "ops/cuda_kernels.h"
#include "ops/kernel_entries.h"

namespace trainctl {

namespace {
const Kernels* replacement = nullptr;
}

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
