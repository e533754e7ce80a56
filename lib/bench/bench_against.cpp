#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/error.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

/// One of the two forms of a step that take turns.
class Side {
 public:
  Side(const BenchRequest& request, World& world)
      : setup_(read_bench_setup(request)),
        where_(open_bench_device(setup_.plan)),
        engine_(bench_engine(setup_, world)),
        batches_(random_batches(setup_.plan)) {
    // Not measured: two that load what steps need, and one that may be captured as a graph.
    take_first_step(*engine_, setup_, world, batches_);
    for (int step = 0; step < 2; ++step) engine_->train_step(batches_);
  }

  double run() {
    seconds_.push_back(engine_->train_step(batches_).step_seconds);
    return seconds_.back();
  }
  const std::vector<double>& all_seconds() const { return seconds_; }

  /// Whether its steps keep the products' first proposals, whatever is timed later.
  bool keeps_proposals() const {
    return setup_.config.parallel.product_algorithms == ProductChoice::proposed &&
           setup_.plan.cuda_graphs;
  }
  bool times_products() const {
    return setup_.plan.device == DeviceKind::cuda &&
           setup_.config.parallel.product_algorithms == ProductChoice::timed;
  }

  const std::string& where() const { return where_; }
  double seconds() const { return median(seconds_); }
  double tokens_per_second() const {
    return static_cast<double>(setup_.plan.tokens_per_step()) / seconds();
  }
  std::int64_t activation_bytes() const { return setup_.plan.activation_bytes(0); }
  std::int64_t memory_bytes() const { return setup_.plan.most_memory().total(); }

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
  // The library's choice is the process's: steps row by row would have it on both sides.
  require(config.times_products() == changed.times_products() || config.keeps_proposals(),
          ExitCode::usage,
          "both sides would have the products of one: compare parallel.product_algorithms=timed as "
          "the change, and with parallel.cuda_graphs, where the config's steps keep theirs");
  for (int pair = 0; pair < request.pairs; ++pair) {
    const double first = config.run();
    const double second = changed.run();
    say_pair(pair, request.pairs, {"step", first}, {"changed", second});
  }
  const std::vector<double> ratios = ratios_of(changed.all_seconds(), config.all_seconds());
  if (request.json) {
    const nlohmann::ordered_json document{
        {"config", json_of(config)},      {"changes", changes},
        {"changed", json_of(changed)},    {"step_over_config", median(ratios)},
        {"step_over_config_all", ratios}, {"device", config.where()}};
    out << document.dump() << '\n';
    return;
  }
  out << "on " << config.where()
      << "\n           tokens/s        step   activations        memory\n";
  print_side(config, "config   ", out);
  print_side(changed, "changed  ", out);
  out << "changed / config, time: " << range_of(ratios).of_pairs("%.3f") << '\n';
}

}  // namespace trainctl
