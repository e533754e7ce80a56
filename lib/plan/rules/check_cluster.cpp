#include "plan/rules/check.h"

namespace trainctl {

void check_cluster(const Config& config, Check& check) {
  const ClusterConfig& cluster = config.cluster;
  check.no_effect("cluster.device_memory", cluster.device_memory && config.parallel.device == "cpu",
                  "parallel.device is cpu");
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
  if (first.empty() || missing.empty() || !clean) return;
  std::string names;
  for (const std::string& name : missing) names += (names.empty() ? "" : ", ") + name;
  check.error("cluster-rates", "cluster." + first,
              "the estimate of the step time needs all four rates; missing: " + names,
              "train once without this section: the run measures all four rates and writes them to "
              "measured.json");
}

}  // namespace trainctl
