#include "run/calibration/constants.h"

#include <utility>

namespace trainctl {

std::string generation_of(const std::string& device) {
  const std::string name = device.substr(device.find_last_of('/') + 1);
  return name.substr(0, name.find_first_of("-."));
}

namespace {

constexpr double weak = 0.7, firm = 0.15;

using Member = double SoftwareFigures::*;

Constant of_software(std::string file, std::string key, double start, double spread, double most,
                     Member member) {
  Constant constant{file, std::move(key), start, spread, most, {}};
  constant.place = [file, member](Machine& machine, const ClusterConfig& cluster) -> double* {
    const bool shared = file == "shared" && cluster.software != "trainctl";
    return shared || cluster.software == file ? &(machine.software.*member) : nullptr;
  };
  return constant;
}

Constant sustained(const std::string& generation, double start) {
  Constant constant{generation, "sustained", start, firm, 1, {}};
  constant.place = [generation](Machine& machine, const ClusterConfig& cluster) -> double* {
    return generation_of(cluster.device.value_or("")) == generation ? &machine.device.sustained
                                                                    : nullptr;
  };
  return constant;
}

}  // namespace

std::vector<Constant> fitted_constants() {
  std::vector<Constant> all{sustained("a100", 0.94), sustained("h100", 0.82),
                            sustained("gb200", 0.86), sustained("h200", 0.82),
                            sustained("b200", 0.86)};
  for (const char* software :
       {"megatron-22", "zb", "nemo", "fsdp-2", "torchtitan", "maxtext", "llmc", "trainctl"}) {
    all.push_back(of_software(software, "overhead", 0.05, weak, 1, &SoftwareFigures::overhead));
  }
  for (const char* software : {"megatron-22", "zb", "fsdp-2"}) {
    all.push_back(
        of_software(software, "attention_speed", 0.9, weak, 2, &SoftwareFigures::attention_speed));
  }
  all.push_back(of_software("fsdp-2", "attention_64", 1, weak, 2, &SoftwareFigures::attention_64));
  all.push_back(
      of_software("megatron-22", "collectives", 1, weak, 3, &SoftwareFigures::collectives));
  const auto shared = [&](const char* key, double start, double most, Member member) {
    all.push_back(of_software("shared", key, start, weak, most, member));
  };
  shared("elements", 1.0, 10, &SoftwareFigures::elements);
  shared("launch", 6e-6, 1e-3, &SoftwareFigures::launch);
  shared("logit_bytes", 12, 200, &SoftwareFigures::logit_bytes);
  shared("score_bytes", 12, 200, &SoftwareFigures::score_bytes);
  shared("tensor_rest", 0.35, 1, &SoftwareFigures::tensor_rest);
  shared("sums_rest", 0.1, 1, &SoftwareFigures::sums_rest);
  shared("network_share", 0.75, 1, &SoftwareFigures::network_share);
  shared("network_latency", 1e-5, 1e-3, &SoftwareFigures::network_latency);
  shared("fixed", 0.02, 10, &SoftwareFigures::fixed);
  return all;
}

}  // namespace trainctl
