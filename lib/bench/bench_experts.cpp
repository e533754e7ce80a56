#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "comm/world.h"
#include "device/slab.h"
#include "formats/print/text.h"
#include "nn/block.h"
#include "nn/stage.h"
#include "ops/context.h"
#include "ops/matmul.h"
#include "plan/model/activations.h"
#include "plan/plan.h"
#include "plan/tables/params.h"

namespace trainctl {

// A layer of experts as a whole, on the CPU or a device: its step, compared with the matrix
// products of a plain MLP that has the same number of parameters for each token.

/// Seconds of each round; every round measures all three.
struct ExpertLayerSpeed {
  std::vector<double> step;      // forward and both backward passes of the layer
  std::vector<double> products;  // matrix products of the layer's own step
  std::vector<double> dense;     // the nine (six) products of an MLP of the active width
  /// Ratios of step to dense, round by round.
  std::vector<double> ratios() const { return ratios_of(step, dense); }
};

namespace {

const std::string name_of_layer = "layers.0.moe";

/// The smallest model around one layer of experts.
ModelShape one_layer(ModelShape model) {
  model.layers = 1;
  model.kinds = {model.kind(dense_layers_first(model))};
  model.kind_of_layer.clear();
  model.vocab = model.padded_vocab = 1;
  return model;
}

ActivationTable activation_table(const Plan& plan, const ModelShape& model) {
  const Mesh alone{};
  return make_activations({.model = model,
                           .mesh = alone,
                           .micro_batch_size = plan.micro_batch_size,
                           .compute = plan.compute},
                          {all_units(1)});
}

std::vector<SlabRow> activation_rows(const ActivationTable& table, bool on_host) {
  std::vector<SlabRow> rows;
  for (const ActivationSpec& row : table.rows) {
    if (row.on_host() == on_host) rows.push_back({row.name, row.shape, row.dtype});
  }
  return rows;
}

std::string gradient_of(const std::string& name) { return "gradient of " + name; }

/// The parameters of the layer alone.
std::vector<SlabRow> parameter_rows(const ModelShape& model, DType compute) {
  std::vector<SlabRow> rows;
  for (const ParamSpec& row : make_parameters(model, Mesh{})) {
    if (!row.name.starts_with(name_of_layer)) continue;
    rows.push_back({row.name, row.shape, row.is_vector ? DType::f32 : compute});
    rows.push_back({gradient_of(row.name), row.shape, DType::f32});
  }
  return rows;
}

constexpr float weight_deviation = 0.02F;

class OneLayer {
 public:
  OneLayer(const Plan& plan, const OpContext& ops)
      : model_(one_layer(plan.model)),
        ops_(ops),
        table_(activation_table(plan, model_)),
        activations_(plan.device, activation_rows(table_, false)),
        on_host_(Slab::on_host_for(plan.device, activation_rows(table_, true))),
        parameters_(plan.device, parameter_rows(model_, plan.compute)),
        memory_(plan.device, {{"state", {static_cast<std::int64_t>(sizeof(StepState))}, DType::u8},
                              {"sums", {1, router_sums + model_.experts}, DType::f32}}) {
    place(plan.micro_batch_size);
    fill_all();
    const HostValues state(memory_.at("state"));
    *reinterpret_cast<StepState*>(state.values().data) = StepState{};
    state.store();
  }

  void step() const {
    const Pass pass{.ops = &ops_,
                    .state = static_cast<StepState*>(memory_.at("state").data),
                    .batch = {},
                    .stream = {},
                    .router_sums = memory_.at("sums")};
    layer_.forward(pass, saved_);
    layer_.backward_input(pass, saved_, gradients_);
    layer_.backward_weight(pass, saved_, gradients_);
  }

 private:
  void place(std::int64_t micro_batch_size) {
    StageInput input;
    input.model = model_;
    input.units = {all_units(1)};
    input.micro_batch_size = micro_batch_size;
    input.tp = {alone_.get()};
    input.experts.ep = alone_.get();
    input.weights = [this](const std::string& name) {
      return Weight{.value = parameters_.at(name),
                    .gradient = parameters_.at(gradient_of(name)),
                    .rows_vary = name.find(".experts.") != std::string::npos};
    };
    input.rows = &table_.places;
    input.activations = [this](int, int number) {
      const ActivationSpec& row = at(table_.rows, number);
      return (row.on_host() ? on_host_ : activations_).at(row.name);
    };
    saved_ = place_block(input, 0, 0).mlp;
    gradients_ = place_block_gradients(input, 0, 0).mlp;
    layer_ = make_experts(input, 0);
  }

  void fill_all() const {
    std::uint64_t number = 0;
    for (const ParamSpec& row : make_parameters(model_, Mesh{})) {
      if (!row.name.starts_with(name_of_layer) || row.init != "normal") continue;
      fill_normal(ops_, parameters_.at(row.name), number++, weight_deviation);
    }
    fill_normal(ops_, saved_.x, number++, 1);
    fill_normal(ops_, gradients_.dy, number++, 1);
  }

  ModelShape model_;
  const OpContext& ops_;
  ActivationTable table_;
  Slab activations_, on_host_, parameters_, memory_;
  std::unique_ptr<Group> alone_ = self_group("layer");
  Experts layer_;
  MlpSaved saved_;
  MlpGradients gradients_;
};

/// The products of a plain MLP: the forward of each layer, the gradients of its input and weight.
class DenseProducts {
 public:
  DenseProducts(const Plan& plan, const OpContext& ops)
      : ops_(ops), tokens_(plan.micro_batch_size * plan.model.seq_length), compute_(plan.compute) {
    const ModelShape& model = plan.model;
    const std::int64_t width = model.topk * model.expert_ffn + model.shared_ffn;
    add(plan.device, model.hidden, width);
    if (model.gated_mlp) add(plan.device, model.hidden, width);
    add(plan.device, width, model.hidden);
  }

  void run() const {
    for (const Slab& slab : slabs_) {
      const Tensor x = slab.at("x");
      const Tensor y = slab.at("y");
      const Tensor weight = slab.at("weight");
      matmul(ops_, {.a = x, .b = weight, .c = y, .transpose_b = true});
      matmul(ops_, {.a = y, .b = weight, .c = x});
      matmul(ops_,
             {.a = y, .b = x, .c = slab.at("gradient"), .transpose_a = true, .accumulate = true});
    }
  }

 private:
  void add(DeviceKind device, std::int64_t from, std::int64_t to) {
    slabs_.emplace_back(device, std::vector<SlabRow>{{"x", {tokens_, from}, compute_},
                                                     {"y", {tokens_, to}, compute_},
                                                     {"weight", {to, from}, compute_},
                                                     {"gradient", {to, from}, DType::f32}});
    const Slab& slab = slabs_.back();
    fill_normal(ops_, slab.at("x"), 2 * slabs_.size(), 1);
    fill_normal(ops_, slab.at("weight"), 2 * slabs_.size() + 1, weight_deviation);
  }

  const OpContext& ops_;
  std::int64_t tokens_;
  DType compute_;
  std::vector<Slab> slabs_;
};

/// Measures a layer of the plan's model on one micro-batch of one rank, which holds all experts:
/// `rounds` rounds after a warm-up. The plan's model has experts. `ops` is on the plan's device.
ExpertLayerSpeed measure_expert_layer(const Plan& plan, const OpContext& ops, int rounds) {
  const OneLayer layer(plan, ops);
  const DenseProducts dense(plan, ops);
  std::vector<Matmul> list;
  record_matmuls(&list);
  layer.step();
  record_matmuls(nullptr);
  WorkClock clock(*ops.stream);
  ExpertLayerSpeed speed;
  for (int round = 0; round <= rounds; ++round) {  // the first one warms up
    const double step = clock.seconds([&] { layer.step(); });
    const double of_dense = clock.seconds([&] { dense.run(); });
    const double own = clock.seconds([&] {
      for (const Matmul& args : list) matmul(ops, args);
    });
    if (round == 0) continue;
    speed.step.push_back(step);
    speed.dense.push_back(of_dense);
    speed.products.push_back(own);
    say_pair(round - 1, rounds, "step", step, "products of a plain MLP", of_dense);
  }
  return speed;
}

constexpr double max_over_dense = 1.3;  // limit of the ratio to the dense MLP, on a CPU

void print_table(const ExpertLayerSpeed& speed, const Plan& plan, const std::string& where,
                 std::ostream& out) {
  const std::vector<double> ratios = speed.ratios();
  out << "on " << where << ": a layer of experts, " << plan.model.topk << " of "
      << plan.model.experts << " for each of " << plan.micro_batch_size * plan.model.seq_length
      << " tokens\n"
      << "step, forward and backward         " << format_seconds(median(speed.step)) << '\n'
      << "its products                       " << format_seconds(median(speed.products)) << '\n'
      << "products of a plain MLP, as wide   " << format_seconds(median(speed.dense)) << '\n'
      << "step / products of the plain MLP   " << spread_of_pairs(ratios, "%.2f") << ", limit "
      << printed("%.2f", max_over_dense) << ": " << verdict(median(ratios) <= max_over_dense)
      << '\n';
}

}  // namespace

void bench_experts(const BenchRequest& request, std::ostream& out) {
  const BenchSetup setup = read_bench_setup(request);
  const Plan& plan = setup.plan;
  require(plan.model.experts > 1, ExitCode::config,
          "this model has no experts: moe.num_experts is 1");
  const BenchContext context(plan);
  const std::string& where = context.where();
  const ExpertLayerSpeed speed = measure_expert_layer(plan, context.ops(), request.pairs);
  const nlohmann::ordered_json document{{"step_seconds", median(speed.step)},
                                        {"products_seconds", median(speed.products)},
                                        {"dense_products_seconds", median(speed.dense)},
                                        {"step_over_dense", median(speed.ratios())},
                                        {"step_over_dense_all", speed.ratios()},
                                        {"limit", max_over_dense},
                                        {"device", where},
                                        {"threads", plan.threads_per_rank},
                                        {"compute", std::string(name_of(plan.compute))}};
  tell(request, document, out, [&] { print_table(speed, plan, where, out); });
}

}  // namespace trainctl
