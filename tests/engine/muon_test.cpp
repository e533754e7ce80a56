// Muon in the engine: its steps against a function in fp64, and from equal gradients the same bits
// in every setup.
#include <array>
#include <cmath>
#include <functional>
#include <mutex>

#include "catch.h"
#include "config/read/read.h"
#include "equal_gradients.h"
#include "thorough.h"
#include "verify/selection/selection.h"

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;
struct Setup {
  int ranks = 1;
  Options options;
};

/// After `steps` steps of the sample from equal gradients; before them with 0.
Tensors after_steps(const Setup& setup, const Options& options, int steps) {
  return after_equal_steps(
      {.options = with(options, setup.options), .ranks = setup.ranks, .steps = steps});
}

struct Matrix {
  std::int64_t rows, columns;
  std::vector<double> x;
  double& at(std::int64_t i, std::int64_t j) {
    return x[static_cast<std::size_t>(i * columns + j)];
  }
};

/// X of a direction after the steps of a set, in fp64.
Matrix orthogonal(Matrix u, const std::vector<std::array<double, 3>>& triples) {
  double squares = 0;
  for (const double value : u.x) squares += value * value;
  for (double& value : u.x) value /= std::sqrt(squares);
  for (const auto& [a, b, c] : triples) {
    const auto n = static_cast<std::size_t>(u.rows);
    Matrix gram{u.rows, u.rows, std::vector<double>(n * n)};
    Matrix mixed = gram;
    Matrix next = u;
    for (std::int64_t i = 0; i < u.rows; ++i)
      for (std::int64_t j = 0; j < u.rows; ++j)
        for (std::int64_t k = 0; k < u.columns; ++k) gram.at(i, j) += u.at(i, k) * u.at(j, k);
    for (std::int64_t i = 0; i < u.rows; ++i)
      for (std::int64_t j = 0; j < u.rows; ++j) {
        mixed.at(i, j) = b * gram.at(i, j);
        for (std::int64_t k = 0; k < u.rows; ++k)
          mixed.at(i, j) += c * gram.at(i, k) * gram.at(k, j);
      }
    for (std::int64_t i = 0; i < u.rows; ++i)
      for (std::int64_t j = 0; j < u.columns; ++j) {
        next.at(i, j) = a * u.at(i, j);
        for (std::int64_t k = 0; k < u.rows; ++k) next.at(i, j) += mixed.at(i, k) * u.at(k, j);
      }
    u = next;
  }
  return u;
}

const std::vector<std::array<double, 3>> simple(5, {3.4445, -4.7750, 2.0315});
const std::vector<std::array<double, 3>> quintic{{4.0848, -6.8946, 2.9270},
                                                 {3.9505, -6.3029, 2.6377},
                                                 {3.7418, -5.5913, 2.3037},
                                                 {2.8769, -3.1427, 1.2046},
                                                 {2.8366, -3.0525, 1.2012}};

const Options muon{"optimizer.type=muon", "optimizer.weight_decay=0.1", "lr_schedule.max_lr=0.01"};
const Options gqa{"model.family=llama", "model.num_query_groups=2"};
const Options experts{"moe.num_experts=4", "model.add_bias_linear=false"};
const Options sharded{"parallel.parallel_optimizer.enable=true",
                      "parallel.parallel_optimizer.threshold=0"};

}  // namespace

TEST_CASE("two steps of muon follow the function in fp64") {
  struct Set {
    Options options;
    std::vector<std::array<double, 3>> triples;
    bool nesterov;
    std::function<double(double, double)> scale;
  };
  const std::vector<Set> sets{
      {{}, quintic, true, [](double m, double n) { return 0.2 * std::sqrt(std::max(m, n)); }},
      {{"optimizer.muon.coefficients=simple", "optimizer.muon.nesterov=false",
        "optimizer.muon.scale=shape"},
       simple,
       false,
       [](double m, double n) { return std::sqrt(std::max(1.0, m / n)); }},
      {{"optimizer.muon.coefficients=[[3.4445, -4.775, 2.0315]]", "optimizer.muon.steps=5",
        "optimizer.muon.scale=unit_rms", "optimizer.muon.scale_factor=0.5"},
       simple,
       true,
       [](double m, double n) { return 0.5 * std::sqrt(m / n); }},
      {{"optimizer.muon.scale=spectral", "optimizer.muon.momentum=0"},
       quintic,
       true,
       [](double m, double n) { return std::sqrt(std::max(m, n)); }}};
  for (const Set& set : sets) {
    CAPTURE(set.options);
    const Tensors before = after_steps({}, with(muon, set.options), 0);
    const Tensors after = after_steps({}, with(muon, set.options), 2);
    const double mu = set.options.size() == 2 && set.options[1].ends_with("momentum=0") ? 0 : 0.95;
    for (const char* word : {"attention.q", "attention.out", "mlp.up", "mlp.down"}) {
      const std::string name = "layers.1." + std::string(word) + ".weight";
      CAPTURE(name);
      const bool widens = std::string(word) == "mlp.up";
      const bool narrows = std::string(word) == "mlp.down";
      const Shape shape{widens ? 64 : 32, narrows ? 64 : 32};
      std::vector<double> theta(before.at(name).begin(), before.at(name).end());
      std::vector<double> b(theta.size(), 0);
      double moved = 0;
      for (int step = 0; step < 2; ++step) {
        Matrix u{shape[0], shape[1], b};
        for (std::size_t i = 0; i < b.size(); ++i) {
          const double g = equal_gradient(name, static_cast<std::int64_t>(i), step);
          b[i] = mu * b[i] + (1 - mu) * g;
          u.x[i] = set.nesterov ? mu * b[i] + (1 - mu) * g : b[i];
        }
        const Matrix x = orthogonal(u, set.triples);
        const double s = set.scale(static_cast<double>(shape[0]), static_cast<double>(shape[1]));
        for (std::size_t i = 0; i < b.size(); ++i) {
          theta[i] = theta[i] * (1 - 0.01 * 0.1) - 0.01 * s * x.x[i];
          moved = std::max(moved, std::abs(0.01 * s * x.x[i]));
        }
      }
      double worst = 0;
      double worst_momentum = 0;
      for (std::size_t i = 0; i < b.size(); ++i) {
        worst = std::max(worst, std::abs(theta[i] - double{after.at(name)[i]}));
        worst_momentum =
            std::max(worst_momentum, std::abs(b[i] - double{after.at(name + " state 0")[i]}));
      }
      CHECK(worst < 1e-4 * moved);
      CHECK(worst_momentum < 1e-6);
    }
  }
}

TEST_CASE("from equal gradients muon makes the same bits in every setup", "[threads]") {
  struct Model {
    Options options;
    std::vector<Setup> layouts;
  };
  const Setup threads{1, {"parallel.threads_per_rank=4"}};
  const Setup tensor{2, {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"}};
  const Setup narrow_keys{4, {"parallel.tensor_parallel=4"}};
  const Setup stages{2, {"parallel.pipeline_stages=2", "train.micro_batch_size=2"}};
  const Setup context{2, {"parallel.context_parallel=2"}};
  const Setup replicas{2, {}};
  const Setup rows{4, with(sharded, {"parallel.tensor_parallel=2"})};
  const Setup mirrors{4, with(sharded, {"parallel.parallel_mode=hybrid_parallel",
                                        "parallel.parallel_optimizer.weight_shard_size=2"})};
  const Setup dealt{2, with(sharded, {"parallel.parallel_mode=data_parallel"})};
  const Setup slices{
      4, with(sharded, {"parallel.bucket_rule=megatron", "parallel.tensor_parallel=2"})};
  const Setup weights{2, with(sharded, {"parallel.parallel_mode=hybrid_parallel",
                                        "parallel.parallel_optimizer.optimizer_level=level3"})};
  const Setup of_experts{2, {"parallel.expert_parallel=2"}};
  const Setup parts{4,
                    {"parallel.tensor_parallel=2", "parallel.expert_parallel=2",
                     "parallel.expert_tensor_parallel=2"}};
  const Setup both{4, with(sharded, {"parallel.tensor_parallel=2", "parallel.expert_parallel=2",
                                     "parallel.expert_tensor_parallel=1"})};
  const std::vector<Model> models{
      {{}, {threads, tensor, stages, context, replicas, rows, dealt, slices, weights}},
      {with(gqa, {"optimizer.muon.items=[gate_up, qkv]"}), {tensor, narrow_keys, rows, mirrors}},
      {with(gqa, {"optimizer.muon.items=[heads]"}), {tensor, narrow_keys, rows, slices}},
      {with(experts, {"optimizer.muon.ns_dtype=bf16"}), {of_experts, parts, both}},
      {{"optimizer.muon.ns_dtype=bf16"}, {threads, tensor, rows, slices}},
  };
  for (const Model& model : models) {
    const Options options = with(muon, model.options);
    const Tensors alone = after_steps({}, options, 2);
    for (std::size_t i = 0; i < model.layouts.size(); i += brief() ? 3 : 1) {
      const Setup& setup = model.layouts[i];
      CAPTURE(model.options, setup.ranks, setup.options);
      const Tensors found = after_steps(setup, options, 2);
      CHECK(found.size() == alone.size());
      CHECK(different_bits(found, alone).empty());
    }
  }
}

TEST_CASE("from equal gradients muon makes the same bits in the layouts of verify", "[threads]") {
  struct Model {
    Options options;
    std::vector<std::string> names;  // parts of the names of layouts
  };
  const Options bf16{"optimizer.muon.ns_dtype=bf16"};
  const Options all_items{"optimizer.muon.items=[gate_up, qkv]"};
  std::vector<Model> models{{gqa, {"tp2sp", "pp2", "cp2", "zero1", "zero2", "zero3", "offload"}},
                            {with(experts, bf16), {"ep2", "tp2", "zero"}}};
  if (thorough()) {
    models.push_back({with(with(gqa, bf16), all_items), {"tp4"}});
    models.push_back({with(gqa, {"optimizer.muon.items=[heads]"}), {"tp4"}});
    models.push_back({with(experts, all_items), {"etp2", "wep2"}});
  }
  for (const Model& model : models) {
    const Options options = with(muon, model.options);
    const ReadResult read = read_config_text(sample_yaml(), "sample.yaml", options);
    const LayoutSelection selection = thorough()
                                          ? select_layouts(read.config, read.sources, 4, false)
                                          : select_few_layouts(read.config, read.sources, 4);
    std::string names;
    for (const LayoutChoice& choice : selection.chosen) names += choice.name() + " ";
    CAPTURE(names);
    for (const std::string& name : model.names) CHECK(names.find(name) != std::string::npos);
    const Tensors alone = after_equal_steps({.options = options, .steps = 1});
    for (std::size_t i = 0; i < selection.chosen.size(); i += brief() ? 3 : 1) {
      const LayoutChoice& choice = selection.chosen[i];
      CAPTURE(choice.name());
      const Tensors found = after_equal_steps(
          {.options = options,
           .ranks = static_cast<int>(choice.ranks()),
           .steps = 1,
           .change = [&](Config& config) { config = with_layout(config, choice); }});
      CHECK(found.size() == alone.size());
      CHECK(different_bits(found, alone).empty());
    }
  }
}

TEST_CASE("a skipped step of muon changes nothing", "[threads]") {
  const Options options =
      with(with(muon, sharded), {"parallel.tensor_parallel=2", "precision.compute=fp16",
                                 "precision.initial_loss_scale=1e19"});
  const Tensors before = after_steps({4, {}}, options, 0);
  SampleRun run{.set_options = options, .ranks = 4, .steps = 1, .world = {}};
  bool skipped = false;
  Tensors after;
  std::mutex mutex;
  run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
    const std::lock_guard lock(mutex);
    skipped = engine.step_state().found_inf != 0;
    join(after, owned_values(engine.parameters(), plan, world.rank()));
  };
  train_sample(run);
  CHECK(skipped);
  CHECK(after.size() == before.size());
  CHECK(different_bits(after, before).empty());
}
