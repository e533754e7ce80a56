// A layer of experts against those of transformers (tests/reference/make_experts.py): the router's
// choice, the order of the rows, the output, the router's losses, and the gradients of the input
// and of every parameter.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/at.h"
#include "comm/world.h"
#include "device/slab.h"
#include "nn/block.h"
#include "nn/stage.h"
#include "ops/kernels.h"
#include "ops/router.h"
#include "plan/model/activations.h"
#include "plan/tables/params.h"
#include "stored_model.h"

using namespace trainctl;
using namespace trainctl::testing;

namespace {

constexpr double experts_bound = 1e-5;  // of the largest value

/// One case: the sizes of its file, and what the file does not say.
struct ExpertCase {
  const char* name;
  bool pre_softmax = false;
  bool sigmoid = false;
  std::int64_t groups = 1;
};
constexpr ExpertCase cases[] = {
    {"mixtral"},
    {"qwen3_moe"},
    {.name = "qwen3_moe_not_normalised", .pre_softmax = true},
    {.name = "qwen2_moe", .pre_softmax = true},
    {.name = "dots1", .sigmoid = true},
    {.name = "dots1_groups", .sigmoid = true, .groups = 3},
};

ModelShape shape_of(const SafetensorsFile& file, const ExpertCase& test) {
  const Tensor wide = file.at("param.experts.up.weight");
  ModelShape model;
  model.family = "llama";
  model.norm_kind = NormKind::rms_norm;
  model.activation = Activation::silu;
  model.gated_mlp = true;
  model.layers = model.heads = 1;
  model.kinds = {{.kv_heads = 1, .experts = true}};
  model.vocab = model.padded_vocab = 1;
  model.hidden = model.head_dim = wide.shape[2];
  model.seq_length = model.positions = model.routing_group = file.at("x").shape[0];
  model.experts = wide.shape[0];
  model.topk = file.at("chosen").shape[1];
  model.expert_ffn = wide.shape[1];
  model.pre_softmax = test.pre_softmax;
  model.weights = test.pre_softmax ? ExpertWeights::all : ExpertWeights::chosen;
  model.sigmoid_scores = model.expert_bias = test.sigmoid;
  if (test.sigmoid) model.topk_scaling = 2.5;
  model.expert_groups = test.groups;
  model.group_topk = 1;
  model.shared_gate = file.contains("param.shared_gate.weight");
  if (file.contains("param.shared.up.weight")) {
    model.shared_ffn = file.at("param.shared.up.weight").shape[0];
  }
  model.balance_factor = 0.3;
  model.z_factor = 0.1;
  return model;
}

ActivationTable activation_table(const ModelShape& model) {
  return make_activations({.model = model, .mesh = Mesh{}}, {all_units(1)});
}

std::vector<SlabRow> activation_rows(const ActivationTable& table) {
  std::vector<SlabRow> rows;
  for (const ActivationSpec& row : table.rows) {
    rows.push_back({row.name, row.shape, row.dtype});
  }
  return rows;
}

/// The parameters of the layer and their gradients, as "NAME" and "grad.NAME".
std::vector<SlabRow> parameter_rows(const ModelShape& model) {
  std::vector<SlabRow> rows;
  for (const ParamSpec& row : make_parameters(model, Mesh{})) {
    rows.push_back({row.name, row.shape, DType::f32});
    rows.push_back({"grad." + row.name, row.shape, DType::f32});
  }
  return rows;
}

void copy(const Tensor& from, const Tensor& to) {
  REQUIRE(from.numel() == to.numel());
  std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes()));
}

/// The largest difference, of the largest value that is expected.
double difference(const Tensor& found, const Tensor& expected) {
  REQUIRE(found.numel() == expected.numel());
  double most = 0;
  double largest = 0;
  for (std::int64_t i = 0; i < expected.numel(); ++i) {
    const double value = expected.as<float>()[i];
    most = std::max(most, std::abs(static_cast<double>(found.as<float>()[i]) - value));
    largest = std::max(largest, std::abs(value));
  }
  REQUIRE(largest > 0);
  return most / largest;
}

/// One layer of experts on one rank, as a stage has it.
struct LayerRun {
  explicit LayerRun(const ExpertCase& test)
      : file(std::string(TRAINCTL_SOURCE_DIR) + "/tests/reference/experts/" + test.name +
             ".safetensors"),
        model(shape_of(file, test)),
        table(activation_table(model)),
        activations(DeviceKind::cpu, activation_rows(table)),
        parameters(DeviceKind::cpu, parameter_rows(model)),
        memory(DeviceKind::cpu, {{"sums", Shape{1, router_sums + model.experts}, DType::f32},
                                 {"scratch", Shape{std::int64_t{1} << 22}, DType::f32}}) {
    for (const auto& [name, entry] : file.entries()) {
      if (!name.starts_with("param.")) continue;
      copy(file.at(name), parameters.at("layers.0.moe." + name.substr(6)));
    }
    StageInput input;
    input.model = model;
    input.units = {all_units(1)};
    input.tp = {alone.get()};
    input.experts.ep = alone.get();
    input.weights = [this](const std::string& name) {
      return Weight{parameters.at(name), parameters.at("grad." + name)};
    };
    input.rows = &table.places;
    input.activations = [this](int, int row) { return activations.at(at(table.rows, row).name); };
    saved = place_block(input, 0, 0).mlp;
    gradients = place_block_gradients(input, 0, 0).mlp;
    layer = make_experts(input, 0);
    state.token_factor = 1.0F / static_cast<float>(model.seq_length);
  }

  void forward_and_backward() {
    const OpContext ops{.kernels = &cpu_kernels(),
                        .stream = &stream,
                        .scratch = static_cast<std::byte*>(memory.at("scratch").data),
                        .scratch_bytes = memory.at("scratch").bytes()};
    const Pass pass{
        .ops = &ops, .state = &state, .batch = {}, .stream = {}, .router_sums = memory.at("sums")};
    copy(file.at("x"), saved.x);
    layer.forward(pass, saved);
    output.assign(saved.y.as<float>(), saved.y.as<float>() + saved.y.numel());
    weight.assign(saved.routed.weight.as<float>(),
                  saved.routed.weight.as<float>() + saved.routed.weight.numel());
    chosen.assign(saved.routed.chosen.as<std::int32_t>(),
                  saved.routed.chosen.as<std::int32_t>() + saved.routed.chosen.numel());
    copy(file.at("dy"), gradients.dy);
    layer.backward_input(pass, saved, gradients);
    layer.backward_weight(pass, saved, gradients);
  }

  double sum(RouterSum one) const {
    return static_cast<double>(memory.at("sums").as<float>()[static_cast<int>(one)]) /
           static_cast<double>(model.seq_length);
  }

  SafetensorsFile file;
  ModelShape model;
  ActivationTable table;
  Slab activations, parameters, memory;
  std::unique_ptr<Group> alone = self_group("layer");
  Stream stream{DeviceKind::cpu, "compute", Stream::Mode::run_inline};
  StepState state;
  Experts layer;
  MlpSaved saved;
  MlpGradients gradients;
  std::vector<std::int32_t> chosen;
  std::vector<float> output, weight;  // their places are used again in the backward pass
};

Tensor tensor_of(std::vector<float>& values) {
  return host_tensor(values.data(), std::ssize(values));
}

/// The choices of each token by expert, with their weights.
void sort_choices(LayerRun& run) {
  const auto topk = static_cast<std::size_t>(run.model.topk);
  std::vector<std::pair<std::int32_t, float>> choices(topk);
  for (std::size_t first = 0; first < run.chosen.size(); first += topk) {
    for (std::size_t j = 0; j < topk; ++j)
      choices[j] = {run.chosen[first + j], run.weight[first + j]};
    std::ranges::sort(choices);
    for (std::size_t j = 0; j < topk; ++j) {
      std::tie(run.chosen[first + j], run.weight[first + j]) = choices[j];
    }
  }
}

}  // namespace

TEST_CASE("a router chooses as those of transformers do, and orders the rows by expert") {
  for (const ExpertCase& test : cases) {
    INFO(test.name);
    LayerRun run(test);
    run.forward_and_backward();
    const RoutedRows& routed = run.saved.routed;
    CHECK(difference(routed.logits, run.file.at("logits")) <= experts_bound);
    sort_choices(run);
    CHECK(all_of<std::int32_t>(run.file, "chosen") == run.chosen);
    CHECK(difference(tensor_of(run.weight), run.file.at("weight")) <= experts_bound);
    const auto tokens = all_of<std::int32_t>(run.file, "token_of_row");
    std::vector<std::int32_t> found(tokens.size(), -1);
    for (std::int64_t i = 0; i < routed.slot.numel(); ++i) {
      found.at(static_cast<std::size_t>(routed.slot.as<std::int32_t>()[i])) =
          static_cast<std::int32_t>(i / run.model.topk);
    }
    CHECK(found == tokens);
  }
}

TEST_CASE("experts give what those of transformers give, and the same gradients") {
  for (const ExpertCase& test : cases) {
    INFO(test.name);
    LayerRun run(test);
    run.forward_and_backward();
    CHECK(difference(tensor_of(run.output), run.file.at("y")) <= experts_bound);
    CHECK(difference(run.gradients.dx, run.file.at("d_x")) <= experts_bound);
    CHECK(difference(run.gradients.d_logits, run.file.at("d_logits")) <= experts_bound);
    for (const auto& [name, entry] : run.file.entries()) {
      if (!name.starts_with("grad.")) continue;
      INFO(name);
      const Tensor found = run.parameters.at("grad.layers.0.moe." + name.substr(5));
      CHECK(difference(found, run.file.at(name)) <= experts_bound);
    }
  }
}

TEST_CASE("the router's losses are those of transformers") {
  for (const ExpertCase& test : cases) {
    INFO(test.name);
    LayerRun run(test);
    run.forward_and_backward();
    const auto expected = [&](const char* name) {
      return static_cast<double>(run.file.at(name).as<float>()[0]);
    };
    CHECK(run.sum(RouterSum::balance) == Approx(expected("balance_loss")).epsilon(experts_bound));
    CHECK(run.sum(RouterSum::z_loss) == Approx(expected("z_loss")).epsilon(experts_bound));
  }
}
