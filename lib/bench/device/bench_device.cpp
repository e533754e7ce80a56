#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <ostream>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "bench/bench_setup.h"
#include "bench/comm/collective_speed.h"
#include "bench/device/device_cases.h"
#include "bench/figures.h"
#include "bench/machine_limits.h"
#include "bench/work_clock.h"
#include "config/devices/known_files.h"
#include "config/devices/read_figures.h"
#include "device/cuda_device.h"
#include "formats/print/memory_fit.h"
#include "ops/kernels.h"
#include "run/calibration/fit.h"
#include "run/preflight/machine.h"

namespace trainctl {

namespace {

using Numbers = std::vector<double>;

constexpr int fit_rounds = 25;

DeviceFigures figures_like(const std::string& name) {
  const KnownFile* file = find_known(known_devices(), name);
  require(file != nullptr, ExitCode::usage,
          "--like " + name + ": `trainctl devices --known` lists the names");
  Diagnostics mistakes;
  return read_device(file->text, name, mistakes);
}

/// Medians of some turns of all cases, after one that warms up.
template <class Cases>
Numbers time_cases(const Cases& cases, WorkClock& clock, int turns) {
  std::vector<Numbers> seconds(cases.size());
  for (int turn = 0; turn <= turns; ++turn) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double taken = clock.seconds(cases[i].run);
      if (turn > 0) seconds[i].push_back(taken);
    }
  }
  Numbers medians;
  for (const Numbers& one : seconds) medians.push_back(median(one));
  return medians;
}

/// Mean of |log(formula / measured)|.
double mean_error(const Numbers& errors) {
  double sum = 0;
  for (const double one : errors) sum += std::abs(one);
  return errors.empty() ? 0 : sum / static_cast<double>(errors.size());
}

class DeviceMeter {
 public:
  DeviceMeter(const Plan& plan, const OpContext& ops, const DeviceBench& options,
              DeviceFigures like, std::ostream& out)
      : plan_(plan),
        ops_(ops),
        options_(options),
        device_(std::move(like)),
        out_(out),
        bench_(plan, ops),
        clock_(*ops.stream) {}

  DeviceFigures measure(const std::string& where) {
    device_.name = where;
    device_.trust = Trust::measured_here;
    device_.cuda = plan_.device == DeviceKind::cuda;
    for (auto& [key, source] : device_.sources) source = "not measured here: as " + options_.like;
    measure_copies();
    measure_products();
    measure_attention();
    measure_sustained();
    return device_;
  }

 private:
  std::string type() const { return plan_.compute == DType::f32 ? "fp32" : "bf16"; }
  void measured(const char* key) {
    device_.sources[key] = "measured by `" + options_.command + "`";
  }
  PriceList list_with(const DeviceFigures& device) const {
    Machine machine;
    machine.device = device;
    machine.software.attention = "own";
    machine.levels = {{.ranks = 1, .bandwidth = device.link, .latency = device.link_latency}};
    return {machine, Mesh{}, plan_.compute};
  }

  void measure_copies() {
    begin_part("copies");
    MachineLimits limits(ops_, plan_.compute);
    for (int i = 0; i < 3; ++i) limits.measure();
    rate_ = limits.products();
    device_.memory_bandwidth = limits.copies();
    device_.memory_reached = 1;
    if (device_.cuda) {
      const CudaDeviceProperties properties = cuda_module().properties(0);
      device_.processors = properties.multiprocessors;
      device_.memory_gib = static_cast<double>(properties.memory_bytes) / gibibyte;
      measured("processors");
    } else {
      device_.processors = 1;
    }
    measured("memory");
  }

  void measure_products() {
    begin_part("products");
    const double longest = options_.seconds / 1500;  // of about 400 runs, most are far shorter
    const std::vector<ProductCase> cases = product_cases(bench_, rate_, longest);
    const Numbers seconds = time_cases(cases, clock_, 5);
    double best = rate_;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const PricedProduct& one = cases[i].shape;
      best = std::max(best, 2.0 * static_cast<double>(one.rows * one.columns) *
                                static_cast<double>(one.inner) / seconds[i]);
    }
    ProductFigures figures;
    figures.peak = best;
    const auto like = device_.products.find("bf16");
    if (device_.cuda && like != device_.products.end()) {
      figures.tiles = like->second.tiles;
    } else {
      figures.tiles = {{16, 16, 1}};
    }
    device_.sustained = 1;
    device_.products = {{type(), figures}};
    const FitStart start{.values = {0.9, 0.3, 50, 3e-6}, .spread = {1, 1, 2, 2}};
    const auto with = [&](const Numbers& values) {
      DeviceFigures changed = device_;
      ProductFigures& of = changed.products[type()];
      of.reached = std::min(1.0, values[0]);
      of.wave = std::min(1.0, values[1]);
      of.half = values[2];
      of.launch = values[3];
      return changed;
    };
    const std::vector<FitCase> fitted(cases.size(),
                                      {.weight = 1, .concerned = {true, true, true, true}});
    const Fitted found = fit(
        fitted, start,
        [&](std::size_t i, const Numbers& values) {
          return std::log(list_with(with(values)).product(cases[i].shape) / seconds[i]);
        },
        fit_rounds, [](int, double) {});
    device_ = with(found.values);
    measured("products");
    out_ << "products           " << cases.size() << ", best " << printed("%.4g", best * 1e-12)
         << " TFLOP/s; the formula is off by " << printed("%.1f", 100 * mean_error(found.errors))
         << " % in the mean\n";
  }

  void measure_attention() {
    begin_part("attention");
    const std::vector<AttentionCase> cases =
        attention_cases(bench_, rate_ / 4, options_.seconds / 300);
    const Numbers seconds = time_cases(cases, clock_, 5);
    const FitStart start{.values = {0.4, 100, 0.8, 1e-5, 0.8}, .spread = {1, 2, 1, 2, 1}};
    const auto with = [&](const Numbers& values) {
      DeviceFigures changed = device_;
      changed.attention = {{"own",
                            {.forward = std::min(1.0, values[0]),
                             .half_length = values[1],
                             .head_64 = values[2],
                             .launch = values[3],
                             .backward = values[4]}}};
      return changed;
    };
    std::vector<FitCase> fitted;
    for (const AttentionCase& one : cases) {
      fitted.push_back(
          {.weight = 1, .concerned = {true, true, one.shape.head_dim == 64, true, one.backward}});
    }
    const Fitted found = fit(
        fitted, start,
        [&](std::size_t i, const Numbers& values) {
          return std::log(list_with(with(values)).attention(cases[i].shape, cases[i].backward) /
                          seconds[i]);
        },
        fit_rounds, [](int, double) {});
    device_ = with(found.values);
    measured("attention");
    out_ << "attention          " << cases.size() << "; the formula is off by "
         << printed("%.1f", 100 * mean_error(found.errors)) << " % in the mean\n";
  }

  /// Products back to back, in their last half beside those of the first half second.
  void measure_sustained() {
    begin_part("products back to back");
    const double longest = options_.seconds / 100;
    const std::vector<ProductCase> cases = product_cases(bench_, rate_, longest);
    const ProductCase& largest = *std::ranges::max_element(cases, {}, [](const ProductCase& one) {
      return static_cast<double>(one.shape.rows * one.shape.columns) *
             static_cast<double>(one.shape.inner);
    });
    const double until = std::max(1.0, options_.seconds / 6);
    Numbers early;
    Numbers late;
    for (double passed = 0; passed < until;) {
      const double taken = clock_.seconds(largest.run);
      passed += taken;
      if (passed < 0.5 || early.empty()) early.push_back(taken);
      if (passed > until / 2) late.push_back(taken);
    }
    device_.sustained = std::clamp(median(early) / median(late), 0.1, 1.0);
    measured("sustained");
    out_ << "sustained          " << printed("%.3f", device_.sustained) << " over "
         << format_seconds(until) << '\n';
  }

  const Plan& plan_;
  const OpContext& ops_;
  const DeviceBench& options_;
  DeviceFigures device_;
  std::ostream& out_;
  OpBench bench_;
  WorkClock clock_;
  double rate_ = 0;  // of square products
};

std::optional<GroupOperation> operation_of_name(const std::string& name) {
  for (int number = 0; number < operation_count; ++number) {
    const auto operation = static_cast<GroupOperation>(number);
    if (name == name_of(operation)) return operation;
  }
  return std::nullopt;
}

/// Each collective and messages between ranks that are threads.
void measure_links(const DeviceBench& options, DeviceKind kind, DeviceFigures& device,
                   std::ostream& out) {
  begin_part("collectives");
  CommBench comm;
  comm.device = kind;
  comm.local_ranks = options.local_ranks;
  comm.least_bytes = 512;
  comm.most_bytes = kind == DeviceKind::cuda ? 512 << 20 : 16 << 20;
  comm.iterations = 10;
  std::vector<CollectiveSpeed> speeds;
  run_thread_world(
      options.local_ranks,
      {.deadline_seconds = comm.deadline_seconds, .check_collectives = false, .report_hangs = true},
      [&](World& world) {
        set_thread_count(std::max(1, usable_cores() / world.local_size()));
        const auto found = measure_collectives(world, comm);
        if (world.rank() == 0) speeds = found;
      });
  device.collectives.clear();
  for (const CollectiveSpeed& speed : speeds) {
    const auto operation = operation_of_name(speed.operation);
    const auto bytes = static_cast<double>(speed.bytes);
    if (operation) {
      CollectiveTable& table = device.collectives[*operation][options.local_ranks];
      table.bytes.push_back(bytes);
      // Never less for more bytes.
      table.seconds.push_back(
          std::max(speed.seconds, table.seconds.empty() ? 0 : table.seconds.back()));
    } else if (speed.operation == "send_receive") {
      device.link = bytes / speed.seconds;  // the last is the largest
      if (speed.bytes <= comm.least_bytes) device.link_latency = speed.seconds;
    }
  }
  device.host_ranks = std::max<std::int64_t>(device.host_ranks, options.local_ranks);
  device.sources["collectives"] = "measured by `" + options.command + "`";
  out << "collectives        of " << options.local_ranks << " ranks, messages at "
      << printed("%.3g", device.link * 1e-9) << " GB/s\n";
}

}  // namespace

void bench_device(const BenchRequest& request, const DeviceBench& given, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const Plan& plan = setup.plan;
  DeviceBench options = given;
  const bool cuda = plan.device == DeviceKind::cuda;
  if (options.like.empty()) options.like = cuda ? "h100-sxm" : "cpu-avx2";
  DeviceFigures like = figures_like(options.like);
  const BenchContext context(plan);
  const std::string& where = context.where();
  out << "on " << where << '\n';
  DeviceFigures device =
      DeviceMeter(plan, context.ops(), options, std::move(like), out).measure(where);
  if (options.local_ranks > 1) measure_links(options, plan.device, device, out);
  write_whole_file(options.file, write_device(device));
  out << "wrote " << options.file.string() << ": use it as cluster.device\n";
}

}  // namespace trainctl
