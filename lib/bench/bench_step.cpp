#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>

#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "bench/work_clock.h"
#include "engine/engine.h"
#include "formats/print/text.h"
#include "ops/matmul.h"

namespace trainctl {

namespace {

double flops_of(const MatmulShape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

/// The distinct products of a step, how often each runs and the seconds its replays took.
struct Product {
  MatmulShape shape;
  std::int64_t count = 0;
  std::vector<double> seconds;  // of one run, for each replay
};

/// Repeats the matrix products of a recorded step on the step's own operands: it needs no memory,
/// and the next step overwrites what this leaves in them.
class Replay {
 public:
  Replay(const std::vector<Matmul>& list, const OpContext& ops)
      : list_(list), ops_(ops), clock_(*ops.stream) {
    for (const Matmul& args : list) product_of(args).count += 1;
  }

  double run() {
    clock_.begin();
    for (const Matmul& args : list_) {
      matmul(ops_, args);
      clock_.lap();
    }
    const std::vector<double> laps = clock_.laps();
    for (std::size_t i = 0; i < laps.size(); ++i) product_of(list_[i]).seconds.push_back(laps[i]);
    return std::accumulate(laps.begin(), laps.end(), 0.0);
  }

  const std::vector<Product>& products() const { return products_; }

 private:
  Product& product_of(const Matmul& args) {
    const MatmulShape shape = shape_of(args);
    for (Product& product : products_) {
      if (product.shape == shape) return product;
    }
    products_.push_back({shape, 0, {}});
    return products_.back();
  }

  const std::vector<Matmul>& list_;
  const OpContext& ops_;
  WorkClock clock_;
  std::vector<Product> products_;
};

struct Measured {
  std::vector<double> step_seconds;
  std::vector<double> products_seconds;
  std::vector<Product> products;
  double products_flops = 0;
  std::vector<double> ratios() const { return ratios_of(step_seconds, products_seconds); }
};

Measured measure(const BenchSetup& setup, int pairs) {
  const std::unique_ptr<World> world = self_world();
  const auto bench = bench_engine(setup, *world);
  Engine& engine = *bench;
  const std::vector<Batch> batches = random_batches(setup.plan);
  engine.train_step(batches);
  std::vector<Matmul> list;
  record_matmuls(&list);
  engine.train_step(batches);
  record_matmuls(nullptr);
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
  for (const Matmul& args : list) measured.products_flops += flops_of(shape_of(args));
  return measured;
}

double best_rate(const std::vector<Product>& products) {
  double best = 0;
  for (const Product& product : products) {
    best = std::max(best, flops_of(product.shape) / median(product.seconds));
  }
  return best;
}

/// FLOP/s of all products together, by their median times.
double overall_rate(const std::vector<Product>& products) {
  double flops = 0;
  double seconds = 0;
  for (const Product& product : products) {
    flops += flops_of(product.shape) * static_cast<double>(product.count);
    seconds += median(product.seconds) * static_cast<double>(product.count);
  }
  return flops / seconds;
}

std::string describe(const MatmulShape& s) {
  return std::to_string(s.m) + " x " + std::to_string(s.n) + " x " + std::to_string(s.k) +
         (s.transpose_a ? " A^T" : "") + (s.transpose_b ? " B^T" : "") +
         (s.accumulate ? " +=" : "");
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
    const double rate = flops_of(product.shape) / median(product.seconds);
    std::array<char, 96> line{};
    std::snprintf(line.data(), line.size(), "%5lld  %8.1f   %5.0f %%   ",
                  static_cast<long long>(product.count), rate * 1e-9, 100 * rate / best);
    out << line.data() << describe(product.shape) << '\n';
  }
}

}  // namespace

void bench_step(const BenchRequest& request, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const std::string where = open_bench_device(setup.plan);
  const Measured measured = measure(setup, request.pairs);
  if (!request.json) return print_table(measured, setup.plan, where, out);
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
      {"compute", std::string(name_of(setup.plan.compute))}};
  out << document.dump() << '\n';
}

}  // namespace trainctl
