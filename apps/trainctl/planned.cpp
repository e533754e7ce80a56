#include "planned.h"

#include <algorithm>

#include "config/devices/figures.h"
#include "config/schema/parallel_config.h"
#include "output.h"
#include "plan/rules/resolve.h"
#include "run/agreement.h"
#include "run/preflight/machine.h"

namespace trainctl {

void add_plan_options(CommandLine& line, PlanRequest& request) {
  line.add_config(request.config, request.set_options);
  line.add_device(request.set_options);
  line.add_whole_number("--world-size", request.world_size,
                        "Number of ranks; default: from the file's parallel section, else 1", 1,
                        max_ranks);
  line.add_whole_number("--ranks-per-host", request.ranks_per_host,
                        "Ranks per host; default: all ranks, but at most 8", 1, max_ranks);
  line.add_flag("--search-again", request.search_again, search_again_text);
}

namespace {

/// If the file names a device, plans for machines that have it, whatever this machine has.
void plan_for_device(const ClusterConfig& cluster, Site& site) {
  Diagnostics mistakes;  // unused: the rules report them
  const DeviceFigures device = read_device(device_text(cluster), *cluster.device, mistakes);
  if (mistakes.has_errors()) return;
  site.device = device.cuda ? DeviceKind::cuda : DeviceKind::cpu;
  site.cudnn = device.cuda;
}

}  // namespace

Planned plan_config(const PlanRequest& request, Purpose purpose) {
  Planned planned;
  planned.read = read_config(request.config, request.set_options);
  ReadResult& read = planned.read;
  Site& site = planned.site;
  site.world_size =
      request.world_size > 0 ? request.world_size : world_size_of(read.config.parallel);
  site.ranks_per_host = request.ranks_per_host > 0 ? request.ranks_per_host
                                                   : std::min<std::int64_t>(site.world_size, 8);
  site.cores_per_host = usable_cores();
  NetworkLevels& levels = read.config.cluster.levels;
  const bool prints = purpose == Purpose::plan || purpose == Purpose::rates;
  const bool names_device = prints && read.config.cluster.device;
  if (request.ranks_per_host > 1 && names_device && levels.empty()) {
    levels.resize(2);
    levels[0].name = "host";
    levels[0].ranks = request.ranks_per_host;
    levels[1].name = "network";
  }
  const ParallelConfig& parallel = read.config.parallel;
  const std::int64_t here = std::min(site.ranks_per_host, site.world_size);
  const DeviceChoice choice = device_here(parallel, here);
  site.device = choice.device;
  site.cudnn = cudnn_here(parallel.attention_backend, choice.device).taken;
  if (parallel.device == "auto" && names_device) {
    plan_for_device(read.config.cluster, site);
  } else if (parallel.device == "auto") {
    print_message("parallel.device auto, seen from here: " + choice.why + "\n");
  }
  const TrainConfig& train = read.config.train;
  planned.steps_unknown = train.epochs && train.steps == 0 && !request.reads_data;
  planned.plan =
      prepare(read, site, purpose, {.again = request.search_again, .choice = &planned.layout},
              request.reads_data);
  return planned;
}

}  // namespace trainctl
