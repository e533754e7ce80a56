#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>

#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "bench/machine_limits.h"
#include "bench/op_times.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

/// One operation: medians over steps.
struct Figure {
  OpRow row;
  std::vector<double> seconds;
  double limit = 0;  // seconds that the machine needs for as many bytes or FLOP
  bool by_products = false;
};

struct ByOperation {
  std::vector<double> steps;  // that are not looked at
  std::vector<double> timed;  // steps with events around each call, by the host's clock
  std::vector<double> spans;  // the same by the events
  std::vector<Figure> figures;
  double products = 0, copies = 0;  // the machine's rates, in FLOP and bytes per second

  double step() const { return median(steps); }
  double sum() const {
    return std::accumulate(figures.begin(), figures.end(), 0.0,
                           [](double sum, const Figure& one) { return sum + one.row.seconds; });
  }
  std::int64_t calls(OpKind kind) const {
    std::int64_t count = 0;
    for (const Figure& one : figures) count += one.row.kind == kind ? one.row.calls : 0;
    return count;
  }
};

void take(const std::vector<OpRow>& rows, std::vector<Figure>& figures) {
  for (const OpRow& row : rows) {
    auto found = std::ranges::find(figures, row.name, [](const auto& one) { return one.row.name; });
    if (found == figures.end())
      found = figures.insert(figures.end(), Figure{.row = row, .seconds = {}});
    found->seconds.push_back(row.seconds);
  }
}

/// Seconds of a copy that moves so many bytes, cold; large ones by the rate of a large copy.
double copy_seconds(double bytes, const OpContext& ops, WorkClock& clock, double rate) {
  constexpr double largest = 1 << 28;
  constexpr int tries = 3;
  if (bytes > largest) return bytes / rate;
  const LargeCopy copy(ops.stream->device(),
                       std::max<std::int64_t>(64, static_cast<std::int64_t>(bytes / 2)));
  double best = clock.seconds([&] { copy.enqueue(*ops.stream); });
  for (int i = 1; i < tries; ++i) {
    best = std::min(best, clock.seconds([&] { copy.enqueue(*ops.stream); }));
  }
  return best;
}

void compare(ByOperation& measured, const OpContext& ops, DType compute) {
  begin_part("copies and products of the machine");
  MachineLimits limits(ops, compute);
  limits.measure();
  measured.products = limits.products();
  measured.copies = limits.copies();
  WorkClock clock(*ops.stream);
  for (Figure& one : measured.figures) {
    const auto calls = static_cast<double>(one.row.calls);
    const double copy =
        calls * copy_seconds(one.row.cost.bytes / calls, ops, clock, measured.copies);
    const double product = one.row.cost.flops / measured.products;
    one.by_products = product > copy;
    one.limit = std::max(copy, product);
  }
}

ByOperation measure_by_op(const BenchSetup& setup, int steps) {
  const std::unique_ptr<World> world = self_world();
  OpTimes times(setup.plan.device);
  const auto engine = bench_engine(setup, *world);
  const std::vector<Batch> batches = random_batches(setup.plan);
  take_first_step(*engine, setup, *world, batches);
  engine->train_step(batches);
  ByOperation measured;
  for (int step = 0; step < steps; ++step) {
    measured.steps.push_back(engine->train_step(batches).step_seconds);
    times.begin();
    measured.timed.push_back(engine->train_step(batches).step_seconds);
    take(times.end(), measured.figures);
    measured.spans.push_back(times.span());
    say_pair(step, steps, {"step", measured.steps.back()}, {"by operation", times.span()});
  }
  for (Figure& one : measured.figures) one.row.seconds = median(one.seconds);
  std::ranges::sort(measured.figures, std::ranges::greater{},
                    [](const Figure& one) { return one.row.seconds; });
  compare(measured, engine->ops(), setup.plan.compute);
  return measured;
}

double tokens_per_second(const ByOperation& measured, const Plan& plan) {
  return static_cast<double>(plan.tokens_per_step()) / measured.step();
}

void print_line(const std::string& name, std::int64_t calls, double seconds, double share,
                const std::string& rest, std::ostream& out) {
  std::array<char, 128> line{};
  std::snprintf(line.data(), line.size(), "%-26s %7lld %11.4f %7.1f %%", name.c_str(),
                static_cast<long long>(calls), seconds * 1e3, 100 * share);
  out << line.data() << rest << '\n';
}

void print_table(const ByOperation& measured, const Plan& plan, const std::string& where,
                 std::ostream& out) {
  const double step = measured.step();
  out << "on " << where << '\n'
      << "tokens/s           " << printed("%.1f", tokens_per_second(measured, plan))
      << "  (median of " << measured.steps.size() << " steps of " << format_seconds(step) << ")\n"
      << "copy               " << printed("%.1f", measured.copies * 1e-9) << " GB/s, product "
      << printed("%.1f", measured.products * 1e-9) << " GFLOP/s\n\n"
      << "operation                    calls          ms     step   of limit       GB/s    TFLOP/s"
         "   limit\n";
  for (const Figure& one : measured.figures) {
    const double seconds = std::max(one.row.seconds, 1e-12);
    std::array<char, 96> rest{};
    std::snprintf(rest.data(), rest.size(), " %8.0f %% %10.1f %10.3f   %s",
                  100 * one.limit / seconds, one.row.cost.bytes / seconds * 1e-9,
                  one.row.cost.flops / seconds * 1e-12, one.by_products ? "products" : "copy");
    print_line(std::string(one.row.name), one.row.calls, seconds, seconds / step, rest.data(), out);
  }
  const double left = step - measured.sum();
  print_line("between them", 0, left, left / step, "", out);
  const double host = median(measured.timed) - median(measured.spans);
  out << "\n"
      << measured.calls(OpKind::kernel) << " operations, " << measured.calls(OpKind::copy)
      << " copies, " << measured.calls(OpKind::memset)
      << " memsets; the host sees the end of a step " << format_seconds(std::max(0.0, host))
      << " after what is timed\n";
}

nlohmann::ordered_json document(const ByOperation& measured, const Plan& plan,
                                const std::string& where) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Figure& one : measured.figures) {
    rows.push_back({{"op", one.row.name},
                    {"kind", name_of(one.row.kind)},
                    {"calls", one.row.calls},
                    {"seconds", one.row.seconds},
                    {"bytes", one.row.cost.bytes},
                    {"flops", one.row.cost.flops},
                    {"step_fraction", one.row.seconds / measured.step()},
                    {"limit_seconds", one.limit},
                    {"limit", one.by_products ? "products" : "copy"}});
  }
  return {{"device", where},
          {"compute", std::string(name_of(plan.compute))},
          {"tokens_per_second", tokens_per_second(measured, plan)},
          {"step_seconds", measured.step()},
          {"timed_step_seconds", median(measured.timed)},
          {"timed_span_seconds", median(measured.spans)},
          {"copy_bytes_per_second", measured.copies},
          {"product_flops_per_second", measured.products},
          {"operations", measured.calls(OpKind::kernel)},
          {"copies", measured.calls(OpKind::copy)},
          {"memsets", measured.calls(OpKind::memset)},
          {"between_seconds", measured.step() - measured.sum()},
          {"rows", rows}};
}

}  // namespace

void bench_by_op(const BenchRequest& request, std::ostream& out) {
  BenchRequest by_rows = request;
  by_rows.set_options.emplace_back("parallel.cuda_graphs=false");  // events are set in each step
  const BenchSetup setup = read_bench_setup(by_rows);
  const std::string where = open_bench_device(setup.plan);
  const ByOperation measured = measure_by_op(setup, request.pairs);
  tell(request, document(measured, setup.plan, where).dump(), out,
       [&] { print_table(measured, setup.plan, where, out); });
}

}  // namespace trainctl
