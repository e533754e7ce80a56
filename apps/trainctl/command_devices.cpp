// trainctl devices: the CUDA devices that ranks of this machine would use.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "commands.h"
#include "config/devices/figures.h"
#include "device/cuda_device.h"
#include "formats/print/text.h"
#include "output.h"

namespace trainctl {

namespace {

constexpr const char* devices_examples =
    "  trainctl devices\n"
    "  trainctl devices --format json\n"
    "  trainctl devices --known\n";

std::string capability_text(int capability) {
  return formatted("{}.{}", capability / 10, capability % 10);
}

/// Whether some CUDA device can be used. If not, warns with the reason, so that a program still
/// reads an empty list instead of a failure.
bool has_devices() {
  try {
    return cuda_module().device_count() > 0;
  } catch (const Error& failure) {
    log_warning(failure.what());
    return false;
  }
}

/// Lists the device files that are part of the program.
int list_known(bool json) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string text = "devices for cluster.device\n";
  for (const KnownFile& file : known_devices()) {
    Diagnostics mistakes;
    const DeviceFigures device = read_device(file.text, std::string(file.name), mistakes);
    require(!mistakes.has_errors(), ExitCode::internal,
            formatted("the file of {} is wrong: {}", file.name, render_text(mistakes, false)));
    const auto bf16 = device.products.find("bf16");
    const double peak =
        (bf16 == device.products.end() ? device.products.begin() : bf16)->second.peak;
    nlohmann::ordered_json sources = nlohmann::ordered_json::object();
    for (const auto& [key, source] : device.sources) sources[key] = source;
    list.push_back({{"name", file.name},
                    {"device", device.name},
                    {"trust", word_of(device.trust)},
                    {"expected_error", expected_error(device.trust)},
                    {"peak_flops", peak},
                    {"memory_gib", device.memory_gib},
                    {"memory_bandwidth", device.memory_bandwidth},
                    {"link_bandwidth", device.link},
                    {"network_bandwidth", device.network_bandwidth},
                    {"sources", sources}});
    text += "  " + padded(std::string(file.name), 14) + device.name + ", " +
            printed("%.4g", peak / 1e12) + " TFLOP/s, " + printed("%.4g", device.memory_gib) +
            " GiB at " + printed("%.3g", device.memory_bandwidth / 1e12) + " TB/s; " +
            std::string(word_of(device.trust)) + ", expect an error of " +
            printed("%.0f", expected_error(device.trust) * 100) + " %\n";
  }
  text += "software for cluster.software\n";
  nlohmann::ordered_json software = nlohmann::ordered_json::array();
  for (const KnownFile& file : known_software()) {
    Diagnostics mistakes;
    const SoftwareFigures figures = read_software(file.text, std::string(file.name), mistakes);
    require(!mistakes.has_errors(), ExitCode::internal,
            formatted("the file of {} is wrong: {}", file.name, render_text(mistakes, false)));
    software.push_back({{"name", file.name}, {"software", figures.name}});
    text += "  " + padded(std::string(file.name), 14) + figures.name + "\n";
  }
  const nlohmann::ordered_json all = {{"devices", list}, {"software", software}};
  print(json ? json_text(all, JsonText::Style::compact) + "\n" : text);
  return 0;
}

}  // namespace

int run_devices(const Arguments& arguments) {
  CommandLine line("Lists the CUDA devices of this machine; local rank N uses device N.",
                   "trainctl devices");
  std::string format = "table";
  line.add_format(format, {"table", "json"});
  bool known = false;
  line.add_flag("--known", known,
                "List the devices and the software whose figures the program has, for plans");
  if (!line.parse(arguments, devices_examples)) return 0;
  if (known) return list_known(format == "json");
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  if (format == "json" && !has_devices()) {
    print(json_text(list, JsonText::Style::compact) + "\n");
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
    text += formatted("{}  {}, compute capability {}, {} multiprocessors, {}\n", number,
                      device.name, capability_text(device.capability), device.multiprocessors,
                      format_bytes(device.memory_bytes));
  }
  print(format == "json" ? json_text(list, JsonText::Style::compact) + "\n" : text);
  return 0;
}

}  // namespace trainctl
