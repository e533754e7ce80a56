// The average of weights: it begins as the weights and follows them by its formula, in every setup
// and with every optimizer.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "catch.h"
#include "device/slab.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;
using Floats = std::vector<float>;

Floats values_in(const Tensor& tensor) {
  Floats values(static_cast<std::size_t>(tensor.numel()));
  load_floats(tensor, values.data());
  return values;
}

/// The largest difference from 0.75 times the average before and a quarter of the weights, over all
/// ranks and steps; more than 1 where an average is missing.
double farthest_from_formula(int ranks, const Options& options, int steps) {
  std::mutex mutex;
  std::map<const ParamStore*, std::vector<Floats>> before;  // by parameter
  double farthest = 0;
  const auto look = [&](const ParamStore& store) {
    const std::lock_guard lock(mutex);
    std::vector<Floats>& averages = before[&store];
    const bool first = averages.empty();
    averages.resize(store.table().size());
    for (int i = 0; i < static_cast<int>(averages.size()); ++i) {
      if (store.owned(i).length() == 0) continue;
      const Floats weights = values_in(store.master(i));
      if (store.average(i).empty()) return void(farthest = 2);
      const Floats found = values_in(store.average(i));
      Floats& kept = averages[static_cast<std::size_t>(i)];
      for (std::size_t k = 0; k < found.size(); ++k) {
        const double expected = first ? weights[k] : 0.75 * kept[k] + 0.25 * weights[k];
        farthest = std::max(farthest, std::abs(expected - found[k]));
      }
      kept = found;
    }
  };
  SampleRun run{.set_options = with({"optimizer.ema_decay=0.75"}, options),
                .ranks = ranks,
                .steps = steps,
                .world = {}};
  run.hooks.finalize_model_grads = [&](const ParamStore& store) { look(store); };
  run.inspect = [&](Engine& engine, const Plan&, World&) { look(engine.parameters()); };
  train_sample(run);
  return farthest;
}

}  // namespace

TEST_CASE("the average of weights follows them in every layout", "[threads]") {
  const Options sharded{"parallel.parallel_optimizer.enable=true",
                        "parallel.parallel_optimizer.optimizer_level=level3"};
  struct Setup {
    int ranks;
    Options options;
  };
  const std::vector<Setup> setups{
      {1, {}},
      {2, {"parallel.tensor_parallel=2"}},
      {2, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"}},
      {4, with(sharded, {"parallel.tensor_parallel=2"})},
      {2, with(sharded, {"precision.compute=bf16", "optimizer.main_params_dtype=bf16"})}};
  for (const Setup& setup : setups) {
    CAPTURE(setup.ranks, setup.options);
    CHECK(farthest_from_formula(setup.ranks, setup.options, 4) < 1e-6);
  }
}

TEST_CASE("the average of weights comes after what each optimizer keeps", "[threads]") {
  for (const Options& options : std::vector<Options>{
           {"optimizer.type=sgd", "optimizer.momentum=0"},
           {"optimizer.type=lion"},
           {"optimizer.type=muon"},
           {"optimizer.groups=[{match: \"*norm*\", type: sgd}]"},
           {"model.family=llama", "moe.num_experts=4", "moe.router_topk=2",
            "moe.router_score_function=sigmoid", "moe.router_enable_expert_bias=true",
            "moe.router_bias_update_rate=0.01"}}) {
    CAPTURE(options);
    CHECK(farthest_from_formula(1, options, 3) < 1e-6);
  }
}
