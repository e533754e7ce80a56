// What section cluster knows of devices, software and networks.
#include <algorithm>
#include <utility>

#include "base/units.h"
#include "config/devices/known_files.h"
#include "config/devices/read_figures.h"
#include "plan/rules/check.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

void check_rates(const ClusterConfig& cluster, Check& check) {
  const std::pair<const char*, bool> rates[] = {
      {"matmul_flops", cluster.matmul_flops.has_value()},
      {"memory_bandwidth", cluster.memory_bandwidth.has_value()},
      {"latency", cluster.latency.has_value()},
      {"bandwidth", cluster.bandwidth.has_value()}};
  std::string first;
  std::vector<std::string> missing;
  for (const auto& [name, given] : rates) {
    if (!given) missing.emplace_back(name);
    if (given && first.empty()) first = name;
  }
  const bool clean = check.clean(
      {"cluster.matmul_flops", "cluster.memory_bandwidth", "cluster.latency", "cluster.bandwidth"});
  if (first.empty() || !clean) return;
  if (cluster.device) {
    return check.error("cluster-device", "cluster." + first,
                       "cluster.device" + check.place_of("cluster.device") +
                           " and the rates of a rank exclude each other",
                       "remove cluster.device, or the four rates");
  }
  if (missing.empty()) return;
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  check.error("cluster-rates", "cluster." + first,
              "the estimate of the step time needs all four rates; missing: " + names,
              "train once without this section: the run measures all four rates and writes them to "
              "measured.json");
}

/// The first mistake of a file of figures, with its place there.
void tell_mistake(const char* path, const Diagnostics& mistakes, Check& check) {
  const Diagnostic& first = mistakes.list().front();
  const std::size_t more = mistakes.list().size() - 1;
  const std::string key = first.path.empty() ? "" : first.path + ": ";
  check.error("device-file", path,
              first.place.to_string() + ": " + key + first.message +
                  (more > 0 ? " (and " + std::to_string(more) + " more)" : ""),
              first.help);
}

void tell_unknown(const char* path, const std::string& name, std::span<const KnownFile> files,
                  Check& check) {
  const std::vector<std::string> names = names_of(files);
  const std::string near = nearest(name, names);
  check.error("device-file", path,
              "\"" + name + "\" is neither a known name nor a file that can be read",
              near.empty() ? "known are " + alternatives(names) : "did you mean " + near + "?");
}

/// Products of the run's type may be guessed; its kernel of attention must be there.
void check_figures(const Facts& facts, const DeviceFigures& device, const SoftwareFigures& software,
                   Check& check) {
  const char* path = "cluster.device";
  const bool fp32 = resolve_compute(facts.config.precision) == ComputeType::fp32;
  const std::string type = fp32 ? "fp32" : "bf16";
  const auto products = device.products.find(type);
  if (products != device.products.end() && products->second.guessed) {
    check.warning("device-guess", path,
                  device.name + " has no figures of products in " + type +
                      ": they are guessed at " + printed("%.4g", products->second.peak * 1e-12) +
                      " TFLOP/s, those in " + (fp32 ? "bf16" : "fp32") +
                      (device.cuda ? (fp32 ? " / 16" : " x 16") : ""),
                  "`trainctl bench device` measures them, or set precision.compute to " +
                      std::string(fp32 ? "bf16" : "fp32"));
  }
  const std::string& kernel = software.attention;
  if (kernel == "scores" || device.attention.contains(kernel)) return;
  std::vector<std::string> kernels{"scores"};
  for (const auto& [name, figures] : device.attention) kernels.push_back(name);
  check.error("device-file", "cluster.software",
              software.name + " has the attention kernel \"" + kernel + "\", of which " +
                  device.name + " has no figures",
              "it has " + alternatives(kernels));
}

void check_levels(const Facts& facts, Check& check) {
  const char* path = "cluster.levels";
  const auto& levels = facts.config.cluster.levels.list;
  check.no_effect(path, !levels.empty() && !facts.config.cluster.device,
                  "only cluster.device has levels");
  if (!check.clean({path})) return;
  std::int64_t below = 1;
  for (std::size_t index = 0; index < levels.size(); ++index) {
    const NetworkLevel& level = levels[index];
    const bool last = index + 1 == levels.size();
    const std::string name = "level " + level.name;
    if (level.ranks == 0 && !last) {
      return check.error("cluster-levels", path, name + " does not say how many ranks it joins",
                         "only the last level may leave ranks out: it joins all");
    }
    if (level.ranks == 0) return;
    if (level.ranks % below != 0 || level.ranks == below) {
      return check.error("cluster-levels", path,
                         name + " joins " + std::to_string(level.ranks) +
                             " ranks, which must be a multiple of the " + std::to_string(below) +
                             " below it",
                         "use for example " + std::to_string(2 * below));
    }
    below = level.ranks;
  }
  const std::int64_t world = facts.site.world_size;
  if (!levels.empty() && below < world) {
    check.error("cluster-levels", path,
                "the last level joins " + std::to_string(below) + " ranks, but there are " +
                    std::to_string(world),
                "leave its ranks out, so that it joins all");
  }
}

}  // namespace

void check_cluster(const Facts& facts, Check& check) {
  const ClusterConfig& cluster = facts.config.cluster;
  check.no_effect("cluster.device_memory",
                  cluster.device_memory && facts.config.parallel.device == "cpu",
                  "parallel.device is cpu");
  check_rates(cluster, check);
  check_levels(facts, check);
  check.no_effect("cluster.price_per_hour", cluster.price_per_hour && !cluster.device,
                  "without cluster.device nothing is priced");
  check.no_effect("cluster.software", cluster.software != "trainctl" && !cluster.device,
                  "without cluster.device no software is compared");
  if (!cluster.device) return;
  if (!check.clean({"cluster.device", "cluster.software", "cluster.matmul_flops",
                    "cluster.memory_bandwidth", "cluster.latency", "cluster.bandwidth"})) {
    return;
  }
  const std::string_view device = device_text(cluster);
  const std::string_view software = software_text(cluster);
  if (device.empty()) tell_unknown("cluster.device", *cluster.device, known_devices(), check);
  if (software.empty()) tell_unknown("cluster.software", cluster.software, known_software(), check);
  if (device.empty() || software.empty()) return;
  Diagnostics mistakes;
  const DeviceFigures figures = read_device(device, *cluster.device, mistakes);
  if (mistakes.has_errors()) return tell_mistake("cluster.device", mistakes, check);
  const SoftwareFigures of_software = read_software(software, cluster.software, mistakes);
  if (mistakes.has_errors()) return tell_mistake("cluster.software", mistakes, check);
  if (check.clean({"precision"})) check_figures(facts, figures, of_software, check);
}

}  // namespace trainctl
