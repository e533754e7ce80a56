#include "bench/comm/collective_speed.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "base/units.h"
#include "bench/figures.h"
#include "comm/nccl/device_world.h"
#include "device/cuda_device.h"
#include "device/slab.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

constexpr std::int64_t width = size_of(DType::f32);

/// One operation on tensors of one size: the call, its operands, and the expected output.
struct Call {
  std::string operation;
  std::function<void()> run;
  Tensor input, output;
  std::function<float(std::int64_t element)> expected;
};

class Collectives {
 public:
  Collectives(World& world, const CommBench& options, std::span<const int> ranks)
      : options_(options),
        devices_(world, options.device, options.deadline_seconds,
                 options.share_devices ? DeviceSharing::nccl : DeviceSharing::none),
        everyone_(world.group("measured values", ranks)),
        group_(devices_.group("measured", ranks, Lane::layers, Carries::all)),
        stream_(options.device, "measured", Stream::Mode::run_inline),
        clock_(stream_),
        rank_(everyone_->rank()),
        ranks_(everyone_->size()),
        next_((rank_ + 1) % ranks_),
        previous_((rank_ + ranks_ - 1) % ranks_) {
    const MessageLine lines[] = {{.peer = next_, .tag = 0, .sends = true},
                                 {.peer = previous_, .tag = 0, .sends = false}};
    group_->open_lines(lines);
    devices_.open();
  }

  void measure(std::int64_t bytes, std::vector<CollectiveSpeed>& found) {
    const std::int64_t count = bytes / width;
    const Slab slab(options_.device,
                    {{"data", {count}, DType::f32}, {"other", {count}, DType::f32}});
    for (const Call& call : calls(slab.at("data"), slab.at("other"))) {
      found.push_back(measure(call, bytes));
    }
  }

  CollectiveSpeed measure_barrier() {
    return measure({.operation = "barrier",
                    .run = [this] { group_->barrier(stream_); },
                    .input = {},
                    .output = {},
                    .expected = {}},
                   0);
  }

 private:
  std::vector<Call> calls(const Tensor& data, const Tensor& other) {
    const std::int64_t part = data.numel() / ranks_;
    const Tensor shard = other.slice(0, part);
    const std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks_), part);
    const auto sum = [this](std::int64_t) { return static_cast<float>(ranks_ * (ranks_ + 1)) / 2; };
    const auto of_part = [part](std::int64_t i) { return static_cast<float>(i / part + 1); };
    return {{"all_reduce", [=, this] { group_->all_reduce(data, stream_); }, data, data, sum},
            {"reduce_scatter", [=, this] { group_->reduce_scatter(data, shard, stream_); }, data,
             shard, sum},
            {"all_gather", [=, this] { group_->all_gather(shard, data, stream_); }, shard, data,
             of_part},
            {"broadcast", [=, this] { group_->broadcast(data, 0, stream_); }, data, data,
             [](std::int64_t) { return 1.0F; }},
            {"all_to_all", [=, this] { group_->all_to_all(data, parts, other, parts, stream_); },
             data, other, of_part},
            {"send_receive", [=, this] { pass_on(data, other); }, data, other,
             [this](std::int64_t) { return static_cast<float>(previous_ + 1); }}};
  }

  /// Sends to the next rank of the ring and receives from the one before.
  void pass_on(const Tensor& data, const Tensor& other) {
    const Event received = group_->receive(other, previous_, 0, stream_);
    const Event sent = group_->send(data, next_, 0, stream_);
    stream_.wait(received);
    stream_.wait(sent);
  }

  /// Counts the wrong elements of this rank after a call. Every rank's input is its rank + 1.
  std::int64_t count_wrong(const Call& call) {
    const auto mine = static_cast<float>(rank_ + 1);
    const std::vector<float> values(static_cast<std::size_t>(call.input.numel()), mine);
    copy_now(call.input,
             {const_cast<float*>(values.data()), call.input.shape, DType::f32, DeviceKind::cpu});
    meet();
    call.run();
    stream_.synchronize();
    const HostValues result(call.output);
    const auto* found = result.values().as<float>();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < call.output.numel(); ++i) {
      if (found[i] != call.expected(i)) ++wrong;
    }
    return wrong;
  }

  CollectiveSpeed measure(const Call& call, std::int64_t bytes) {
    const std::int64_t wrong = call.expected ? count_wrong(call) : 0;
    meet();
    const double mine = clock_.seconds([&] {
      for (int i = 0; i < options_.iterations; ++i) call.run();
    });
    const std::vector<double> times = gather_values(*everyone_, mine / options_.iterations);
    double all_wrong = 0;
    for (const double one : gather_values(*everyone_, static_cast<double>(wrong))) all_wrong += one;
    CollectiveSpeed speed{.operation = call.operation,
                          .bytes = bytes,
                          .seconds = *std::max_element(times.begin(), times.end()),
                          .wrong = static_cast<std::int64_t>(all_wrong)};
    speed.algorithm_rate = static_cast<double>(bytes) / std::max(1e-12, speed.seconds);
    speed.bus_rate = speed.algorithm_rate * bus_factor(call.operation, ranks_);
    return speed;
  }

  void meet() { gather_values(*everyone_, 0.0); }

  const CommBench& options_;
  DeviceWorld devices_;
  std::unique_ptr<Group> everyone_;  // all ranks of `group_`, for values on the host
  std::unique_ptr<Group> group_;
  Stream stream_;
  WorkClock clock_;
  int rank_, ranks_, next_, previous_;
};

}  // namespace

double bus_factor(const std::string& operation, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (operation == "all_reduce") return 2 * others;
  const bool parts =
      operation == "reduce_scatter" || operation == "all_gather" || operation == "all_to_all";
  return parts ? others : 1;
}

std::vector<std::int64_t> sizes_of(const CommBench& options, int ranks) {
  const std::int64_t unit = width * ranks;
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes;
       bytes *= options.factor) {
    const std::int64_t whole = std::max<std::int64_t>(1, bytes / unit) * unit;
    if (sizes.empty() || sizes.back() < whole) sizes.push_back(whole);
  }
  return sizes;
}

std::vector<CollectiveSpeed> measure_collectives(World& world, const CommBench& options) {
  return measure_collectives(world, options, world.all_ranks());
}

std::vector<CollectiveSpeed> measure_collectives(World& world, const CommBench& options,
                                                 std::span<const int> ranks) {
  Collectives collectives(world, options, ranks);
  std::vector<CollectiveSpeed> found{collectives.measure_barrier()};
  for (const std::int64_t bytes : sizes_of(options, static_cast<int>(ranks.size()))) {
    if (world.rank() == 0) begin_part("messages of " + format_bytes(bytes));
    collectives.measure(bytes, found);
  }
  std::ranges::stable_sort(found, {}, &CollectiveSpeed::operation);
  return found;
}

namespace {

void print_table(const std::vector<CollectiveSpeed>& speeds, const CommBench& options, int ranks,
                 const std::string& wire, std::ostream& out) {
  out << ranks << " ranks, " << wire << ", fp32, mean of " << options.iterations
      << " calls on the slowest rank\n";
  out << formatted("{:<15} {:>12} {:>12} {:>12} {:>12} {:>8}\n", "operation", "bytes", "us",
                   "alg GB/s", "bus GB/s", "wrong");
  for (const CollectiveSpeed& speed : speeds) {
    out << formatted("{:<15} {:12} {:12.1f} {:12.3f} {:12.3f} {:8}\n", speed.operation, speed.bytes,
                     speed.seconds * 1e6, speed.algorithm_rate * 1e-9, speed.bus_rate * 1e-9,
                     speed.wrong);
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

/// The name of the wire on which messages travel.
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
      out << json_text(document(speeds, world.size(), wire), JsonText::Style::compact) << '\n';
    } else {
      print_table(speeds, options, world.size(), wire, out);
    }
    out.flush();
  };
  const WorldOptions world{.deadline_seconds = options.deadline_seconds,
                           .check_collectives = false,
                           .report_hangs = true};
  run_world(options.local_ranks, world, on_rank);
  require(wrong == 0, ExitCode::internal,
          formatted("{} elements were not what the operation should give", wrong));
}

}  // namespace trainctl
