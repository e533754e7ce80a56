#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/device/links.h"
#include "bench/figures.h"
#include "bench/ops/op_bench.h"
#include "config/devices/figures.h"
#include "device/cuda_device.h"
#include "formats/print/rows.h"
#include "ops/kernels.h"
#include "ops/matmul.h"
#include "plan/prices/price_list.h"
#include "run/calibration/calibrate.h"
#include "run/records/step_records.h"

namespace trainctl {

// The cases of `trainctl bench device`: products and attention of many shapes.

struct ProductCase {
  PricedProduct shape;
  std::function<void()> run;
};
struct AttentionCase {
  PricedAttention shape;
  bool backward = false;
  std::function<void()> run;
};

namespace {

struct Extents {
  std::int64_t rows, from, to;
};

/// The extents of layers of models from a few million to some billion parameters.
constexpr Extents layers[] = {
    {128, 256, 256},     {256, 768, 768},     {512, 512, 2048},    {1024, 768, 768},
    {1024, 768, 2304},   {1024, 768, 3072},   {1024, 3072, 768},   {1024, 1024, 8192},
    {2048, 1024, 1024},  {2048, 1024, 4096},  {2048, 4096, 1024},  {4096, 768, 768},
    {4096, 768, 3072},   {4096, 1024, 50304}, {4096, 2048, 2048},  {4096, 4096, 4096},
    {8192, 2048, 8192},  {8192, 4096, 4096},  {8192, 4096, 14336}, {8192, 14336, 4096},
    {16384, 8192, 8192}, {16384, 8192, 28672}};

std::string sides(std::int64_t rows, std::int64_t columns) {
  return formatted("{} x {}", rows, columns);
}

/// Cases of each layer's forward product and both gradients, the second accumulated in fp32, for
/// shapes that take at most `longest` seconds at `rate` FLOP/s. Operands lie in `bench`.
std::vector<ProductCase> product_cases(const OpBench& bench, double rate, double longest) {
  std::vector<ProductCase> cases;
  const OpContext* ops = &bench.ops();
  const auto add = [&](const PricedProduct& shape, const Matmul& args) {
    cases.push_back({shape, [ops, args] { matmul(*ops, args); }});
  };
  for (const auto& [rows, from, to] : layers) {
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(from * to);
    if (flops / rate > longest) continue;
    const Tensor x = bench.values("x " + sides(rows, from), {rows, from});
    const Tensor y = bench.values("y " + sides(rows, to), {rows, to});
    const Tensor w = bench.values("w " + sides(to, from), {to, from});
    const Tensor dw = bench.zeros("dw " + sides(to, from), {to, from}, DType::f32);
    add({rows, to, from}, {.a = x, .b = w, .c = y, .transpose_b = true});
    add({rows, from, to}, {.a = y, .b = w, .c = x});
    add({to, from, rows, 1, true},
        {.a = y, .b = x, .c = dw, .transpose_a = true, .accumulate = true});
  }
  return cases;
}

/// Cases of our attention kernels: sequences of several lengths with heads of 64 and 128.
std::vector<AttentionCase> attention_cases(const OpBench& bench, double rate, double longest) {
  const OpContext* ops = &bench.ops();
  std::vector<AttentionCase> cases;
  for (const std::int64_t length : {256, 512, 1024, 2048, 4096, 8192}) {
    for (const std::int64_t dim : {64, 128}) {
      constexpr std::int64_t heads = 8;
      const double met = static_cast<double>(length + 1) / 2;
      const PricedAttention priced{length, heads, dim, length, length, met};
      if (5 * priced.flops() / rate > longest) continue;
      const AttentionArgs args = attention_args(bench, causal_shape(1, length, heads, heads, dim),
                                                " " + sides(length, heads * dim));
      cases.push_back({priced, false, [ops, args] { attention_forward(*ops, args); }});
      cases.push_back({priced, true, [ops, args] { attention_backward(*ops, args); }});
    }
  }
  return cases;
}

using Numbers = std::vector<double>;

constexpr int fit_rounds = 25;

DeviceFigures figures_like(const std::string& name) {
  const KnownFile* file = find_known(known_devices(), name);
  require(file != nullptr, ExitCode::usage,
          "--like " + name + ": `trainctl devices --known` lists the names");
  Diagnostics mistakes;
  return read_device(file->text, name, mistakes);
}

/// The median time of each case over `turns` rounds, after a warm-up round.
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

/// The table of product times. The two orientations of a square product share an entry.
std::vector<ProductTime> table_of(const std::vector<ProductCase>& cases, const Numbers& seconds) {
  std::vector<ProductTime> table;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const PricedProduct& one = cases[i].shape;
    const auto same = std::ranges::find_if(table, [&](const ProductTime& other) {
      return other.rows == one.rows && other.columns == one.columns && other.inner == one.inner &&
             other.accumulates == one.accumulates;
    });
    if (same == table.end()) {
      table.push_back({one.rows, one.columns, one.inner, one.accumulates, seconds[i]});
    } else {
      same->seconds = std::sqrt(same->seconds * seconds[i]);
    }
  }
  return table;
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
    device_.trust = "measured here";
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
  void part(const char* what) const {
    if (out_.rdbuf() != nullptr) begin_part(what);
  }
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
    part("copies");
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
    part("products");
    const double longest = options_.seconds / 1500;  // about 400 runs, most far shorter
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
    const auto error = [&](std::size_t i, const Numbers& values) {
      return std::log(list_with(with(values)).product(cases[i].shape) / seconds[i]);
    };
    const Numbers found =
        fit(fitted, {0.9, 0.3, 50, 3e-6}, {1, 1, 2, 2}, error, fit_rounds, [](int, double) {});
    const Numbers errors = errors_of(fitted, error, found);
    device_ = with(found);
    std::vector<ProductTime> table = table_of(cases, seconds);
    const double apart = mean_error(errors_without_own(table));
    device_.products[type()].table = std::move(table);
    measured("products");
    out_ << formatted(
        "products           {}, best {:.4g} TFLOP/s; the formula is off by {:.1f} % in the mean, "
        "by the nearest other of the table {:.1f} %\n",
        cases.size(), best * 1e-12, 100 * mean_error(errors), 100 * apart);
  }

  /// For each product of `table`, the error of the formula with the table's other entries.
  Numbers errors_without_own(const std::vector<ProductTime>& table) const {
    Numbers errors;
    for (std::size_t i = 0; i < table.size(); ++i) {
      Machine machine;
      machine.device = device_;
      std::vector<ProductTime>& others = machine.device.products[type()].table;
      others = table;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      compare_table(machine);
      const ProductTime& one = table[i];
      const PriceList list(machine, Mesh{}, plan_.compute);
      errors.push_back(std::log(
          list.product({one.rows, one.columns, one.inner, 1, one.accumulates}) / one.seconds));
    }
    return errors;
  }

  void measure_attention() {
    part("attention");
    const std::vector<AttentionCase> cases =
        attention_cases(bench_, rate_ / 4, options_.seconds / 300);
    if (cases.empty()) {
      out_ << "attention          not measured: no case is short enough for "
           << format_seconds(options_.seconds) << " (--seconds); as " << options_.like << '\n';
      return;
    }
    const Numbers seconds = time_cases(cases, clock_, 5);
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
    const auto error = [&](std::size_t i, const Numbers& values) {
      return std::log(list_with(with(values)).attention(cases[i].shape, cases[i].backward) /
                      seconds[i]);
    };
    const Numbers found = fit(fitted, {0.4, 100, 0.8, 1e-5, 0.8}, {1, 2, 1, 2, 1}, error,
                              fit_rounds, [](int, double) {});
    const Numbers errors = errors_of(fitted, error, found);
    device_ = with(found);
    std::vector<AttentionTime>& table = device_.attention["own"].table;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const PricedAttention& one = cases[i].shape;
      table.push_back({one.keys, one.heads, one.head_dim, cases[i].backward, seconds[i]});
    }
    measured("attention");
    out_ << formatted(
        "attention          {}; the formula is off by {:.1f} % in the mean, by the nearest other "
        "of the table {:.1f} %\n",
        cases.size(), 100 * mean_error(errors), 100 * mean_error(attention_errors_without_own()));
  }

  /// For each pass of the table, the error of the formula with the table's other entries.
  Numbers attention_errors_without_own() const {
    const std::vector<AttentionTime>& table = device_.attention.at("own").table;
    Numbers errors;
    for (std::size_t i = 0; i < table.size(); ++i) {
      Machine machine;
      machine.device = device_;
      std::vector<AttentionTime>& others = machine.device.attention["own"].table;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      compare_table(machine);
      const AttentionTime& one = table[i];
      const double met = static_cast<double>(one.keys + 1) / 2;
      const PricedAttention priced{one.keys, one.heads, one.head_dim, one.keys, one.keys, met};
      errors.push_back(
          std::log(list_with(machine.device).attention(priced, one.backward) / one.seconds));
    }
    return errors;
  }

  /// Runs products back to back and compares their last half with the first half second.
  void measure_sustained() {
    part("products back to back");
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
  double rate_ = 0;  // FLOP/s of square products
};

/// Prints the step time of the configuration as planned from the file and as measured.
void tell_own_step(World& world, BenchRequest request, const DeviceBench& options,
                   std::ostream& out) {
  if (world.rank() == 0) begin_part("steps of " + request.config);
  request.set_options.push_back("cluster.device=" + options.file);
  PlannedStep step;
  try {
    step = measure_planned_step(world, request);
  } catch (const Error& error) {
    // Every rank throws this before the first exchange, for another device or too few ranks.
    if (error.code() != ExitCode::config) throw;
    if (world.rank() == 0) out << "a step             not measured: " << error.what() << '\n';
    return;
  }
  if (world.rank() > 0) return;
  out << "a step             planned " << format_seconds(step.planned) << ", measured "
      << format_seconds(step.measured) << ": " << printed("%+.1f", 100 * step.error()) << " %\n"
      << "                   "
      << differences_text(mean_of(step.ledgers), mean_of(step.by_rank.by_rank)) << '\n';
}

std::string gigabytes(double bytes) { return printed("%.3g", bytes * 1e-9) + " GB/s"; }

/// Measures collectives, messages and contention between the ranks of `world`. Rank 0 prints.
void measure_ranks(World& world, const DeviceBench& options, const Plan& plan,
                   DeviceFigures& device, std::ostream& out) {
  if (world.rank() == 0) begin_part("collectives");
  CommBench comm;
  comm.device = plan.device;
  comm.min_bytes = 512;
  comm.max_bytes = plan.device == DeviceKind::cuda ? 512 << 20 : 16 << 20;
  comm.iterations = 10;
  const LinkFindings found = measure_links(world, comm, plan);
  take_links(found, device);
  const std::string source = "measured by `" + options.command + "`";
  if (!found.inside.empty()) device.sources["collectives"] = source;
  if (!found.between.empty()) device.sources["network"] = source;
  device.sources["host"] = "ranks " + source + "; bandwidth as " + options.like;
  device.sources["contention"] = source;
  if (world.rank() > 0) return;
  if (!found.inside.empty()) {
    out << "collectives        of the " << found.host_ranks << " ranks of a host, messages at "
        << gigabytes(device.link) << '\n';
  }
  if (!found.between.empty()) {
    out << "network            between " << found.hosts << " hosts, messages at "
        << gigabytes(device.network_bandwidth) << " for each of " << found.host_ranks << " ranks, "
        << format_seconds(device.network_latency) << '\n';
  }
  out << "contention         " << printed("%.3f", device.contention)
      << ", of products during sums over all ranks\n";
}

/// The work of a rank of a world; rank 0 prints and writes.
void measure_on(World& world, const BenchRequest& request, const DeviceBench& given,
                std::ostream& out) {
  set_log_rank(world.rank(), world.size());
  const BenchSetup setup = read_bench_setup(request, world);
  const Plan& plan = setup.plan;
  const bool cuda = plan.device == DeviceKind::cuda;
  const bool tells = world.rank() == 0;
  DeviceBench options = given;
  if (options.like.empty()) options.like = cuda ? "h100-sxm" : "cpu-avx2";
  DeviceFigures device = figures_like(options.like);
  std::ostream nowhere(nullptr);
  // Ranks on a CPU share its memory, so all measure at once; with devices only rank 0 measures.
  if (tells || !cuda) {
    const BenchContext context(plan);
    if (tells) out << "on " << context.where() << '\n';
    device = DeviceMeter(plan, context.ops(), options, device, tells ? out : nowhere)
                 .measure(context.where());
  }
  if (world.size() > 1) measure_ranks(world, options, plan, device, out);
  const auto everyone = world.everyone("written");
  std::string text = write_device(device);
  broadcast_bytes(*everyone, text, 0);
  if (world.local_rank() == 0) write_whole_file(options.file, text);  // one file on every host
  if (tells) out << "wrote " << options.file << ": use it as cluster.device\n";
  gather_values(*everyone, 0.0);
  tell_own_step(world, request, options, out);
}

}  // namespace

void bench_device(const BenchRequest& request, const DeviceBench& options, std::ostream& out) {
  const double deadline = 300 + 10 * options.seconds;  // ranks wait for rank 0
  const WorldOptions world{
      .deadline_seconds = deadline, .check_collectives = false, .report_hangs = true};
  run_world(options.local_ranks, world,
            [&](World& one) { measure_on(one, request, options, out); });
}

}  // namespace trainctl
