#include "plan/prepare/runnable.h"

#include <string>
#include <utility>

#include "base/units.h"
#include "plan/cost/estimate.h"
#include "plan/prices/machine.h"

namespace trainctl {

namespace {

/// "data parallel (2 ranks)": what some stage's gradients are summed over; empty: nothing.
std::string sums_of(const Plan& plan) {
  for (const StagePlan& stage : plan.stages) {
    for (const CollectiveUse& use : stage.communication) {
      if (use.purpose == TrafficPurpose::gradients) {
        return std::string(name_of(use.cargo)) + " over " + name_of(use.group) + " (" +
               std::to_string(use.ranks) + " ranks)";
      }
    }
  }
  return "";
}

}  // namespace

void check_finalizing(const Plan& plan, const Config& config, const SourceMap& sources,
                      Diagnostics& diagnostics) {
  if (config.hooks.finalize_model_grads) return;
  const std::string sums = sums_of(plan);
  if (sums.empty()) return;
  const std::string path = "hooks.finalize_model_grads";
  diagnostics.add({Severity::error, "unfinished-gradients", path,
                   "finalize_model_grads: false leaves gradients unsummed, but this layout has to "
                   "sum " +
                       sums + ": ranks that share parameters would drift apart",
                   "set finalize_model_grads to true", sources.find(path)});
}

void check_device_memory(const Plan& plan, const Config& config, const SourceMap& sources,
                         Diagnostics& diagnostics) {
  const bool given = config.cluster.device_memory.has_value();
  const std::optional<double> gib = given ? config.cluster.device_memory : plan.device_gib;
  if (plan.device != DeviceKind::cuda || !gib) return;
  const double limit = *gib * 1024 * 1024 * 1024;
  const std::string path = given ? "cluster.device_memory" : "cluster.device";
  const MemoryEstimate& memory = plan.max_memory();
  if (static_cast<double>(memory.device()) <= limit) return;
  const std::pair<const char*, std::int64_t> parts[] = {
      {"parameters", memory.parameters},       {"gradients", memory.gradients},
      {"optimizer", memory.optimizer},         {"activations", memory.activations},
      {"communication", memory.communication}, {"library", memory.library},
      {"communicators", memory.communicators}};
  std::string list;
  for (const auto& [name, bytes] : parts) {
    if (bytes == 0) continue;
    list += (list.empty() ? "" : ", ") + std::string(name) + " " + format_bytes(bytes);
  }
  diagnostics.add({Severity::warning, "device-memory", path,
                   "the fullest rank needs " + format_bytes(memory.device()) +
                       " of its device, which has " +
                       format_bytes(static_cast<std::int64_t>(limit)) + ": " + list,
                   "use recompute, smaller micro-batches, more ranks or a parallel optimizer",
                   sources.find(path)});
}

void check_device_queues(const Plan& plan, const Config& config, const SourceMap& sources,
                         Diagnostics& diagnostics) {
  // Where ranks share devices, nothing on a device waits for what is enqueued later.
  if (plan.device != DeviceKind::cuda) return;
  if (plan.share_devices == DeviceSharing::without_nccl) return;
  DeviceStreams most;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const DeviceStreams count = count_streams(plan, stage);
    if (count.total() > most.total()) most = count;
  }
  if (most.total() <= device_queues) return;
  const std::string path = "parallel.virtual_pipeline_stages";
  const std::string rings =
      most.rings > 0 ? " + " + std::to_string(most.rings) + " around rings of context_parallel"
                     : "";
  const bool compares = compares_software(config.cluster);
  diagnostics.add(
      {compares ? Severity::warning : Severity::error, "device-queues", path,
       "a rank needs " + std::to_string(most.engine) + " streams of the engine + " +
           std::to_string(most.stages) + " for messages between stages (up to 4 for each of " +
           std::to_string(plan.map.chunks) + " chunks)" + rings + " = " +
           std::to_string(most.total()) + ", but a CUDA device has " +
           std::to_string(device_queues) +
           " queues: streams that share one wait for each other, and two ranks could wait for "
           "each other's messages for ever",
       "set virtual_pipeline_stages to " +
           std::to_string((device_queues - most.engine - most.rings) / 4) + " or less",
       sources.find(path)});
}

}  // namespace trainctl
