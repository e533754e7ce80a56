#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>

#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "bench/op_times.h"
#include "bench/work_clock.h"
#include "config/schema/words.h"
#include "engine/engine.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

/// Calls with the same products, how often the step makes them, and the seconds of one for each
/// replay.
struct Product {
  std::vector<MatmulShape> shapes;
  std::int64_t count = 0;
  std::vector<double> seconds;

  double flops() const {
    return std::accumulate(shapes.begin(), shapes.end(), 0.0,
                           [](double sum, const auto& shape) { return sum + flops_of(shape); });
  }
};

/// Repeats the matrix products of a recorded step, as the step makes them (several as one launch,
/// with what belongs to them), on the step's own operands: it needs no memory, and the next step
/// overwrites what this leaves in them.
class Replay {
 public:
  Replay(const std::vector<ProductCall>& list, const OpContext& ops)
      : list_(list), ops_(ops), clock_(*ops.stream) {
    for (const ProductCall& call : list) product_of(call).count += 1;
  }

  /// Seconds of all. On a device events between them would take time of their own.
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
  engine.train_step(batches);  // now a step that is a graph is captured
  Measured measured;
  for (int pair = 0; pair < pairs; ++pair) {
    const double step = engine.train_step(batches).step_seconds;
    const double products = replay.run();
    measured.step_seconds.push_back(step);
    measured.products_seconds.push_back(products);
    say_pair(pair, pairs, {"step", step}, {"its products", products});
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
    std::string text;
    for (const MatmulShape& one : shapes) text += (text.empty() ? "" : ", ") + describe({one});
    return text;
  }
  return (shapes.size() > 1 ? std::to_string(shapes.size()) + " of " : "") + std::to_string(s.m) +
         " x " + std::to_string(s.n) + " x " + std::to_string(s.k) + (s.transpose_a ? " A^T" : "") +
         (s.transpose_b ? " B^T" : "") + (s.accumulate ? " +=" : "");
}

void print_table(const Measured& measured, const Plan& plan, const std::string& where,
                 std::ostream& out) {
  const double step = median(measured.step_seconds);
  const double best = best_rate(measured.products);
  out << "on " << where << '\n'
      << "tokens/s           "
      << printed("%.1f", static_cast<double>(plan.tokens_per_step()) / step) << "  (median of "
      << measured.step_seconds.size() << " steps of " << format_seconds(step) << ")\n"
      << "step / products    " << range_of(measured.ratios()).of_pairs("%.3f") << '\n'
      << "products           " << printed("%.1f", overall_rate(measured.products) * 1e-9)
      << " GFLOP/s, " << printed("%.0f", 100 * overall_rate(measured.products) / best)
      << " % of the best shape's " << printed("%.1f", best * 1e-9) << "\n\n"
      << "count   GFLOP/s   of best   m x n x k\n";
  for (const Product& product : measured.products) {
    const double rate = product.flops() / median(product.seconds);
    std::array<char, 96> line{};
    std::snprintf(line.data(), line.size(), "%5lld  %8.1f   %5.0f %%   ",
                  static_cast<long long>(product.count), rate * 1e-9, 100 * rate / best);
    out << line.data() << describe(product.shapes) << '\n';
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
      {"planned_bytes", setup.plan.most_memory().device()},
      {"graphs", setup.plan.cuda_graphs},
      {"product_algorithms", word_of(setup.config.parallel.product_algorithms)}};
  tell(request, document.dump(), out, [&] { print_table(measured, setup.plan, where, out); });
}

}  // namespace trainctl
