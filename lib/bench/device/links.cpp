#include "bench/device/links.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/integers.h"
#include "base/text.h"
#include "bench/figures.h"
#include "comm/nccl/device_world.h"
#include "ops/kernels.h"

namespace trainctl {

namespace {

using Ranks = std::vector<int>;

/// The ranks of this rank's host, and the ranks with its local number on every host.
struct Places {
  Ranks inside, between;
};

Places places_of(World& world, Group& everyone) {
  const std::vector<std::uint64_t> hosts = gather_values(everyone, fnv1a(world.host(), fnv_offset));
  std::map<std::uint64_t, Ranks> by_host;
  for (int rank = 0; rank < world.size(); ++rank) {
    by_host[hosts[static_cast<std::size_t>(rank)]].push_back(rank);
  }
  Places places;
  places.inside = by_host[hosts[static_cast<std::size_t>(world.rank())]];
  const auto place = std::ranges::find(places.inside, world.rank()) - places.inside.begin();
  for (const auto& [host, ranks] : by_host) {
    require(
        ranks.size() == places.inside.size(), ExitCode::usage,
        formatted("levels are measured on equally many ranks of each host: one has {}, another {}",
                  ranks.size(), places.inside.size()));
    places.between.push_back(ranks[static_cast<std::size_t>(place)]);
  }
  std::ranges::sort(places.between);
  return places;
}

/// Times products of this rank alone, and during sums over all ranks, which last longer.
class Contention {
 public:
  Contention(World& world, const CommBench& options, const Plan& plan)
      : devices_(world, options.device, options.deadline_seconds,
                 options.share_devices ? DeviceSharing::nccl : DeviceSharing::none),
        everyone_(world.everyone("contention values")),
        group_(devices_.group("contention", world.all_ranks(), Lane::layers, Carries::all)),
        compute_(options.device, "compute", Stream::Mode::run_inline),
        sums_(options.device, "sums", Stream::Mode::queued),
        scratch_(options.device, {{"scratch", {plan.scratch_bytes()}, DType::u8}}),
        ops_{.kernels = &kernels_for(options.device),
             .stream = &compute_,
             .scratch = static_cast<std::byte*>(scratch_.at("scratch").data),
             .scratch_bytes = scratch_.at("scratch").bytes()},
        clock_(compute_),
        product_(ops_, size_of_product(options.device), plan.compute),
        data_(options.device, {{"data", {summed}, DType::f32}}) {
    devices_.open();
  }

  double measure() {
    constexpr int turns = 5;
    products_ = count_for(time_of(1));
    group_->all_reduce(data_.at("data"), sums_);
    sums_.synchronize();
    const double sum = agreed(seconds_of([&] {
      group_->all_reduce(data_.at("data"), sums_);
      sums_.synchronize();
    }));
    std::vector<double> added;
    for (int turn = 0; turn < turns; ++turn) {
      meet();
      const double alone = agreed(time_of(products_));
      // Sums for twice the time of the products alone, since both may slow down.
      const int sums = static_cast<int>(std::clamp(std::ceil(2 * alone / sum), 1.0, 500.0));
      for (int i = 0; i < sums; ++i) group_->all_reduce(data_.at("data"), sums_);
      const double beside = agreed(time_of(products_));
      sums_.synchronize();
      added.push_back(beside / alone - 1);
    }
    return median(added);
  }

 private:
  static constexpr std::int64_t summed = 1 << 20;  // values, 4 MiB

  static std::int64_t size_of_product(DeviceKind device) {
    return device == DeviceKind::cpu ? 512 : 4096;
  }
  double time_of(int products) {
    return clock_.seconds([&] {
      for (int i = 0; i < products; ++i) product_.enqueue(ops_);
    });
  }
  /// The number of products in a tenth of a second, equal on all ranks.
  int count_for(double one) {
    constexpr double long_enough = 0.1;
    return static_cast<int>(std::clamp(long_enough / agreed(one), 1.0, 10000.0));
  }
  double agreed(double mine) {
    const std::vector<double> all = gather_values(*everyone_, mine);
    return *std::ranges::max_element(all);
  }
  void meet() { gather_values(*everyone_, 0.0); }

  DeviceWorld devices_;
  std::unique_ptr<Group> everyone_;  // group for values on the host
  std::unique_ptr<Group> group_;
  Stream compute_, sums_;
  Slab scratch_;
  OpContext ops_;
  WorkClock clock_;
  SquareProduct product_;
  Slab data_;
  int products_ = 1;
};

std::optional<GroupOperation> operation_of_name(const std::string& name) {
  for (int number = 0; number < operation_count; ++number) {
    const auto operation = static_cast<GroupOperation>(number);
    if (name == name_of(operation)) return operation;
  }
  return std::nullopt;
}

/// Messages around the ring: the time of the smallest, and the rate of the largest.
struct MessageFigures {
  double latency = 0, bandwidth = 0;
};
MessageFigures messages_of(const std::vector<CollectiveSpeed>& speeds) {
  MessageFigures figures;
  for (const CollectiveSpeed& speed : speeds) {
    if (speed.operation != "send_receive") continue;
    if (figures.latency == 0) figures.latency = speed.seconds;
    figures.bandwidth = static_cast<double>(speed.bytes) / speed.seconds;
  }
  return figures;
}

}  // namespace

LinkFindings measure_links(World& world, const CommBench& options, const Plan& plan) {
  const std::unique_ptr<Group> everyone = world.everyone("hosts");
  const Places places = places_of(world, *everyone);
  LinkFindings found;
  found.host_ranks = static_cast<int>(places.inside.size());
  found.hosts = static_cast<int>(places.between.size());
  if (found.host_ranks > 1) found.inside = measure_collectives(world, options, places.inside);
  if (found.hosts > 1) found.between = measure_collectives(world, options, places.between);
  found.contention = Contention(world, options, plan).measure();
  return found;
}

void take_links(const LinkFindings& found, DeviceFigures& device) {
  if (!found.inside.empty()) {
    device.collectives.clear();
    for (const CollectiveSpeed& speed : found.inside) {
      const auto operation = operation_of_name(speed.operation);
      if (!operation || speed.bytes == 0) continue;  // a barrier has no bytes
      CollectiveTable& table = device.collectives[*operation][found.host_ranks];
      table.bytes.push_back(static_cast<double>(speed.bytes));
      // The times must not decrease with the bytes.
      table.seconds.push_back(
          std::max(speed.seconds, table.seconds.empty() ? 0 : table.seconds.back()));
    }
    const MessageFigures messages = messages_of(found.inside);
    device.link = messages.bandwidth;
    device.link_latency = messages.latency;
  }
  if (!found.between.empty()) {
    const MessageFigures messages = messages_of(found.between);
    device.network_bandwidth = messages.bandwidth;
    device.network_latency = messages.latency;
    device.network_links = found.host_ranks;
  }
  device.host_ranks = found.hosts > 1 ? found.host_ranks
                                      : std::max<std::int64_t>(device.host_ranks, found.host_ranks);
  device.contention = std::clamp(found.contention, 0.0, 1.0);
}

}  // namespace trainctl
