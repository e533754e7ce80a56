#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "bench/comm/collective_speed.h"
#include "device/cuda_device.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

void print_table(const std::vector<CollectiveSpeed>& speeds, const CommBench& options, int ranks,
                 const std::string& wire, std::ostream& out) {
  out << ranks << " ranks, " << wire << ", fp32, mean of " << options.iterations
      << " calls on the slowest rank\n";
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%-15s %12s %12s %12s %12s %8s\n", "operation", "bytes",
                "us", "alg GB/s", "bus GB/s", "wrong");
  out << line.data();
  for (const CollectiveSpeed& speed : speeds) {
    std::snprintf(line.data(), line.size(), "%-15s %12lld %12.1f %12.3f %12.3f %8lld\n",
                  speed.operation.c_str(), static_cast<long long>(speed.bytes), speed.seconds * 1e6,
                  speed.algorithm_rate * 1e-9, speed.bus_rate * 1e-9,
                  static_cast<long long>(speed.wrong));
    out << line.data();
  }
}

nlohmann::ordered_json document(const std::vector<CollectiveSpeed>& speeds, int ranks,
                                const std::string& wire) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const CollectiveSpeed& speed : speeds) {
    rows.push_back({{"operation", speed.operation},
                    {"bytes", speed.bytes},
                    {"seconds", speed.seconds},
                    {"algorithm_bytes_per_second", speed.algorithm_rate},
                    {"bus_bytes_per_second", speed.bus_rate},
                    {"wrong", speed.wrong}});
  }
  return {{"ranks", ranks}, {"wire", wire}, {"operations", rows}};
}

/// What the messages go over.
std::string wire_of(const CommBench& options, const World& world) {
  if (options.device == DeviceKind::cuda) {
    const int device = cuda_device_of(world.local_rank(), options.share_devices);
    return "NCCL on " + std::string(options.share_devices ? "a shared " : "") +
           cuda_module().properties(device).name;
  }
  return options.local_ranks > 0 ? "threads" : "MPI";
}

}  // namespace

void bench_comm(const CommBench& options, std::ostream& out) {
  std::int64_t wrong = 0;
  const auto on_rank = [&](World& world) {
    set_log_rank(world.rank(), world.size());
    set_thread_count(std::max(1, usable_cores() / world.local_size()));
    const std::vector<CollectiveSpeed> speeds = measure_collectives(world, options);
    if (world.rank() != 0) return;
    for (const CollectiveSpeed& speed : speeds) wrong += speed.wrong;
    const std::string wire = wire_of(options, world);
    if (options.json) {
      out << document(speeds, world.size(), wire).dump() << '\n';
    } else {
      print_table(speeds, options, world.size(), wire, out);
    }
    out.flush();
  };
  const WorldOptions world{.deadline_seconds = options.deadline_seconds,
                           .check_collectives = false,
                           .report_hangs = true};
  if (options.local_ranks > 0) {
    run_thread_world(options.local_ranks, world, on_rank);
  } else {
    run_mpi_world(world, on_rank);
  }
  require(wrong == 0, ExitCode::internal,
          std::to_string(wrong) + " elements were not what the operation should give");
}

}  // namespace trainctl
