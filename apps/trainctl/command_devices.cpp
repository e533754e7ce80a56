// trainctl devices: the CUDA devices that ranks of this machine would use.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "commands.h"
#include "device/cuda_device.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* devices_examples =
    "  trainctl devices\n"
    "  trainctl devices --format json\n";

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

/// False, with a warning that says why, where no CUDA device can be used: an empty list for a
/// program that reads it, and no failure of the question.
bool has_devices() {
  try {
    return cuda_module().device_count() > 0;
  } catch (const Error& failure) {
    log_warning(failure.what());
    return false;
  }
}

}  // namespace

int run_devices(const Arguments& arguments) {
  CommandLine line("Lists the CUDA devices of this machine; local rank N uses device N.",
                   "trainctl devices");
  std::string format = "table";
  line.add_format(format, {"table", "json"});
  if (!line.parse(arguments, devices_examples)) return 0;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (format == "json" && !has_devices()) {
    print(list.dump() + "\n");
    return 0;
  }
  const CudaModule& cuda = cuda_module();
  std::string text;
  for (int number = 0; number < cuda.device_count(); ++number) {
    const CudaDeviceProperties device = cuda.properties(number);
    list.push_back({{"number", number},
                    {"name", device.name},
                    {"capability", capability_text(device.capability)},
                    {"multiprocessors", device.multiprocessors},
                    {"memory_bytes", device.memory_bytes},
                    {"cache_bytes", device.cache_bytes}});
    text += std::to_string(number) + "  " + device.name + ", compute capability " +
            capability_text(device.capability) + ", " + std::to_string(device.multiprocessors) +
            " multiprocessors, " + format_bytes(device.memory_bytes) + "\n";
  }
  print(format == "json" ? list.dump() + "\n" : text);
  return 0;
}

}  // namespace trainctl
