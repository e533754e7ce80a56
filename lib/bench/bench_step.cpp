#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "bench/op_times.h"
#include "config/schema/words.h"
#include "engine/engine.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

/// One operation: medians over steps.
struct Figure {
  OpRow row;
  std::vector<double> seconds;
  double limit = 0;  // seconds that the machine needs for these bytes or FLOP
  bool by_products = false;
};

struct ByOperation {
  std::vector<double> steps;  // plain steps, without events
  std::vector<double> timed;  // steps with events around each call, by the host's clock
  std::vector<double> spans;  // seconds of those steps by the events
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

/// Seconds of a cold copy that moves `bytes` bytes; for large ones computed from `rate`.
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
    say_pair(step, steps, "step", measured.steps.back(), "by operation", times.span());
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

void print_line(std::string_view name, std::int64_t calls, double seconds, double share,
                const std::string& rest, std::ostream& out) {
  out << formatted("{:<26} {:7} {:11.4f} {:7.1f} %{}\n", name, calls, seconds * 1e3, 100 * share,
                   rest);
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
    print_line(one.row.name, one.row.calls, seconds, seconds / step,
               formatted(" {:8.0f} % {:10.1f} {:10.3f}   {}", 100 * one.limit / seconds,
                         one.row.cost.bytes / seconds * 1e-9, one.row.cost.flops / seconds * 1e-12,
                         one.by_products ? "products" : "copy"),
               out);
  }
  const double left = step - measured.sum();
  print_line("between them", 0, left, left / step, "", out);
  const double host = median(measured.timed) - median(measured.spans);
  out << "\n"
      << measured.calls("kernel") << " operations, " << measured.calls("copy") << " copies, "
      << measured.calls("memset") << " memsets; the host sees the end of a step "
      << format_seconds(std::max(0.0, host)) << " after what is timed\n";
}

nlohmann::ordered_json document(const ByOperation& measured, const Plan& plan,
                                const std::string& where) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Figure& one : measured.figures) {
    rows.push_back({{"op", one.row.name},
                    {"kind", word_of(one.row.kind)},
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
          {"operations", measured.calls("kernel")},
          {"copies", measured.calls("copy")},
          {"memsets", measured.calls("memset")},
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
  tell(request, document(measured, setup.plan, where), out,
       [&] { print_table(measured, setup.plan, where, out); });
}

namespace {

/// Calls with equal products: their number in a step, and the seconds of one in each replay.
struct Product {
  std::vector<MatmulShape> shapes;
  std::int64_t count = 0;
  std::vector<double> seconds;

  double flops() const {
    return std::accumulate(shapes.begin(), shapes.end(), 0.0,
                           [](double sum, const auto& shape) { return sum + flops_of(shape); });
  }
};

/// Repeats the matrix products of a recorded step, as the step calls them (several as one launch,
/// with fused operations), on the step's own operands: no memory is needed, and the next step
/// overwrites the results.
class Replay {
 public:
  Replay(const std::vector<ProductCall>& list, const OpContext& ops)
      : list_(list), ops_(ops), clock_(*ops.stream) {
    for (const ProductCall& call : list) product_of(call).count += 1;
  }

  /// Seconds of all products; on a device without events in between, which would take time.
  double run() {
    time_each();
    const double each = std::accumulate(laps_.begin(), laps_.end(), 0.0);
    if (ops_.stream->device() == DeviceKind::cpu) return each;
    return clock_.seconds([&] {
      for (const ProductCall& call : list_) call.run(ops_);
    });
  }

  const std::vector<Product>& products() const { return products_; }

 private:
  void time_each() {
    clock_.begin();
    for (const ProductCall& call : list_) {
      call.run(ops_);
      clock_.lap();
    }
    laps_ = clock_.laps();
    for (std::size_t i = 0; i < laps_.size(); ++i) {
      product_of(list_[i]).seconds.push_back(laps_[i]);
    }
  }

  Product& product_of(const ProductCall& call) {
    for (Product& product : products_) {
      if (product.shapes == call.shapes) return product;
    }
    products_.push_back({call.shapes, 0, {}});
    return products_.back();
  }

  const std::vector<ProductCall>& list_;
  const OpContext& ops_;
  WorkClock clock_;
  std::vector<double> laps_;
  std::vector<Product> products_;
};

struct Measured {
  std::vector<double> step_seconds;
  std::vector<double> products_seconds;
  std::vector<Product> products;
  std::vector<double> ratios() const { return ratios_of(step_seconds, products_seconds); }
};

Measured measure(const BenchSetup& setup, int pairs) {
  const std::unique_ptr<World> world = self_world();
  OpTimes times(setup.plan.device);
  const auto bench = bench_engine(setup, *world);
  Engine& engine = *bench;
  const std::vector<Batch> batches = random_batches(setup.plan);
  take_first_step(engine, setup, *world, batches);
  std::vector<ProductCall> list;
  times.record(&list);
  engine.train_step(batches);
  times.record(nullptr);
  Replay replay(list, engine.ops());
  replay.run();
  engine.train_step(batches);  // captures the step now if it is a graph
  Measured measured;
  for (int pair = 0; pair < pairs; ++pair) {
    const double step = engine.train_step(batches).step_seconds;
    const double products = replay.run();
    measured.step_seconds.push_back(step);
    measured.products_seconds.push_back(products);
    say_pair(pair, pairs, "step", step, "its products", products);
  }
  measured.products = replay.products();
  return measured;
}

double best_rate(const std::vector<Product>& products) {
  double best = 0;
  for (const Product& product : products) {
    best = std::max(best, product.flops() / median(product.seconds));
  }
  return best;
}

/// FLOP/s of all products together, by their median times.
double overall_rate(const std::vector<Product>& products) {
  double flops = 0;
  double seconds = 0;
  for (const Product& product : products) {
    flops += product.flops() * static_cast<double>(product.count);
    seconds += median(product.seconds) * static_cast<double>(product.count);
  }
  return flops / seconds;
}

std::string describe(const std::vector<MatmulShape>& shapes) {
  const MatmulShape& s = shapes.front();
  const bool alike = std::ranges::all_of(shapes, [&](const MatmulShape& one) { return one == s; });
  if (!alike) {
    return joined(shapes, ", ", [](const MatmulShape& one) { return describe({one}); });
  }
  return formatted("{}{} x {} x {}{}{}{}",
                   shapes.size() > 1 ? std::to_string(shapes.size()) + " of " : "", s.m, s.n, s.k,
                   s.transpose_a ? " A^T" : "", s.transpose_b ? " B^T" : "",
                   s.accumulate ? " +=" : "");
}

void print_table(const Measured& measured, const Plan& plan, const std::string& where,
                 std::ostream& out) {
  const double step = median(measured.step_seconds);
  const double best = best_rate(measured.products);
  out << "on " << where << '\n'
      << "tokens/s           "
      << printed("%.1f", static_cast<double>(plan.tokens_per_step()) / step) << "  (median of "
      << measured.step_seconds.size() << " steps of " << format_seconds(step) << ")\n"
      << "step / products    " << spread_of_pairs(measured.ratios(), "%.3f") << '\n'
      << "products           " << printed("%.1f", overall_rate(measured.products) * 1e-9)
      << " GFLOP/s, " << printed("%.0f", 100 * overall_rate(measured.products) / best)
      << " % of the best shape's " << printed("%.1f", best * 1e-9) << "\n\n"
      << "count   GFLOP/s   of best   m x n x k\n";
  for (const Product& product : measured.products) {
    const double rate = product.flops() / median(product.seconds);
    out << formatted("{:5}  {:8.1f}   {:5.0f} %   {}\n", product.count, rate * 1e-9,
                     100 * rate / best, describe(product.shapes));
  }
}

}  // namespace

void bench_step(const BenchRequest& request, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const std::string where = open_bench_device(setup.plan);
  const Measured measured = measure(setup, request.pairs);
  const double best = best_rate(measured.products);
  const nlohmann::ordered_json document{
      {"tokens_per_second",
       static_cast<double>(setup.plan.tokens_per_step()) / median(measured.step_seconds)},
      {"step_seconds", median(measured.step_seconds)},
      {"step_over_products", median(measured.ratios())},
      {"step_over_products_all", measured.ratios()},
      {"products_flops_per_second", overall_rate(measured.products)},
      {"products_over_best", overall_rate(measured.products) / best},
      {"device", where},
      {"threads", setup.plan.threads_per_rank},
      {"compute", std::string(name_of(setup.plan.compute))},
      {"planned_bytes", setup.plan.max_memory().device()},
      {"graphs", setup.plan.cuda_graphs},
      {"product_algorithms", word_of(setup.config.parallel.product_algorithms)}};
  tell(request, document, out, [&] { print_table(measured, setup.plan, where, out); });
}

namespace {

/// One of the two configurations whose steps alternate.
class Side {
 public:
  Side(const BenchRequest& request, World& world)
      : setup_(read_bench_setup(request)),
        where_(open_bench_device(setup_.plan)),
        engine_(bench_engine(setup_, world)),
        batches_(random_batches(setup_.plan)) {
    // Not measured: two steps that load kernels, and one that may be captured as a graph.
    take_first_step(*engine_, setup_, world, batches_);
    for (int step = 0; step < 2; ++step) engine_->train_step(batches_);
  }

  double run() {
    seconds_.push_back(engine_->train_step(batches_).step_seconds);
    return seconds_.back();
  }
  const std::vector<double>& all_seconds() const { return seconds_; }

  /// Whether its steps keep the library's first proposals for products, despite later timing.
  bool keeps_proposals() const {
    return setup_.config.parallel.product_algorithms == "proposed" && setup_.plan.cuda_graphs;
  }
  bool times_products() const {
    return setup_.plan.device == DeviceKind::cuda &&
           setup_.config.parallel.product_algorithms == "timed";
  }

  const std::string& where() const { return where_; }
  double seconds() const { return median(seconds_); }
  double tokens_per_second() const {
    return static_cast<double>(setup_.plan.tokens_per_step()) / seconds();
  }
  std::int64_t activation_bytes() const { return setup_.plan.activation_bytes(0); }
  std::int64_t memory_bytes() const { return setup_.plan.max_memory().total(); }

 private:
  BenchSetup setup_;
  std::string where_;
  std::unique_ptr<Engine> engine_;
  std::vector<Batch> batches_;
  std::vector<double> seconds_;
};

void print_side(const Side& side, const char* name, std::ostream& out) {
  out << name << printed("%10.1f", side.tokens_per_second()) << std::setw(12)
      << format_seconds(side.seconds()) << std::setw(14) << format_bytes(side.activation_bytes())
      << std::setw(14) << format_bytes(side.memory_bytes()) << '\n';
}

nlohmann::ordered_json json_of(const Side& side) {
  return {{"tokens_per_second", side.tokens_per_second()},
          {"step_seconds", side.seconds()},
          {"activation_bytes", side.activation_bytes()},
          {"memory_bytes", side.memory_bytes()}};
}

}  // namespace

void bench_against(const BenchRequest& request, const std::vector<std::string>& changes,
                   std::ostream& out) {
  BenchRequest changed_request = request;
  changed_request.set_options.insert(changed_request.set_options.end(), changes.begin(),
                                     changes.end());
  const std::unique_ptr<World> world = self_world();
  Side config(request, *world);
  Side changed(changed_request, *world);
  // The choice of algorithms holds for the process, so steps run row by row would share it.
  require(config.times_products() == changed.times_products() || config.keeps_proposals(),
          ExitCode::usage,
          "both sides would have the products of one: compare parallel.product_algorithms=timed as "
          "the change, and with parallel.cuda_graphs, where the config's steps keep theirs");
  for (int pair = 0; pair < request.pairs; ++pair) {
    const double first = config.run();
    const double second = changed.run();
    say_pair(pair, request.pairs, "step", first, "changed", second);
  }
  const std::vector<double> ratios = ratios_of(changed.all_seconds(), config.all_seconds());
  const nlohmann::ordered_json document{
      {"config", json_of(config)},      {"changes", changes},
      {"changed", json_of(changed)},    {"step_over_config", median(ratios)},
      {"step_over_config_all", ratios}, {"device", config.where()}};
  tell(request, document, out, [&] {
    out << "on " << config.where()
        << "\n           tokens/s        step   activations        memory\n";
    print_side(config, "config   ", out);
    print_side(changed, "changed  ", out);
    out << "changed / config, time: " << spread_of_pairs(ratios, "%.3f") << '\n';
  });
}

}  // namespace trainctl
