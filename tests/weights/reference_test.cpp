// The whole model against values that another implementation computed
// (tests/reference/make_reference.py).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "catch.h"
#include "config/read/read.h"
#include "engine/engine.h"
#include "plan/prepare/make_plan.h"
#include "weights/safetensors.h"

using namespace trainctl;

namespace {

const char* const case_names[] = {"gpt2_tied",
                                  "gpt2_untied_no_bias",
                                  "llama_gqa",
                                  "llama_qk_norm_scaled_rope",
                                  "qwen2_qkv_bias",
                                  "gpt2_documents",
                                  "window_caps_multipliers",
                                  "chunks_biases_offset_limit",
                                  "yarn_relu2_out_bias",
                                  "longrope_mlp_bias",
                                  "post_norms_whole_qk",
                                  "both_norms_after_rope",
                                  "sinks_gate_window",
                                  "l2_temperature",
                                  "gpt2_post_norms"};

std::string reference(const std::string& file) {
  return std::string(TRAINCTL_SOURCE_DIR) + "/tests/reference/" + file;
}

/// The case's model section plus training settings that equal the script's.
ReadResult read_case(const std::string& name, int micro_batch) {
  ReadResult read =
      read_config(reference(name + ".yaml"),
                  {"data.train=none", "train.steps=4", "train.global_batch_size=2",
                   "train.micro_batch_size=" + std::to_string(micro_batch), "optimizer.beta2=0.95",
                   "optimizer.weight_decay=0.1", "optimizer.clip_grad_norm=0.5",
                   "lr_schedule.max_lr=0.01", "parallel.threads_per_rank=1"});
  INFO(render_text(read.diagnostics, false));
  REQUIRE(!read.diagnostics.has_errors());
  return read;
}

template <class T>
std::vector<T> rows(const Tensor& x, std::int64_t begin, std::int64_t end) {
  const Tensor part = x.slice(begin, end);
  std::vector<T> values(static_cast<std::size_t>(part.numel()));
  std::memcpy(values.data(), part.data, static_cast<std::size_t>(part.bytes()));
  return values;
}

std::vector<Batch> batches_of(const SafetensorsFile& file, std::int64_t micro_batch) {
  std::vector<Batch> batches;
  for (std::int64_t begin = 0; begin < 2; begin += micro_batch) {
    const auto part = [&](const char* name) {
      return rows<std::int32_t>(file.at(std::string("batch.") + name), begin, begin + micro_batch);
    };
    Batch batch;
    batch.tokens = part("tokens");
    batch.labels = part("labels");
    batch.position = part("position");
    batch.document = part("document");
    batch.loss_weight = rows<float>(file.at("batch.loss_weight"), begin, begin + micro_batch);
    for (float weight : batch.loss_weight) batch.weight_sum += static_cast<double>(weight);
    batch.global_token.resize(batch.tokens.size());
    batch.length = std::ssize(batch.tokens) / micro_batch;
    batch.real.assign(static_cast<std::size_t>(micro_batch), batch.length);
    batches.push_back(batch);
  }
  return batches;
}

double largest(const Tensor& x) {
  double most = 0;
  const float* values = x.as<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(values[i])));
  }
  return most;
}

double largest_difference(const Tensor& x, const Tensor& y) {
  REQUIRE(x.shape == y.shape);
  double most = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(x.as<float>()[i]) -
                                   static_cast<double>(y.as<float>()[i])));
  }
  return most;
}

struct Case {
  Case(const std::string& name, int micro_batch)
      : file(reference(name + ".safetensors")), read(read_case(name, micro_batch)) {
    plan = make_plan(read.config, {}, read.sources, read.diagnostics);
    INFO(render_text(read.diagnostics, false));
    REQUIRE(!read.diagnostics.has_errors());
    world = self_world();
    const bool separate = name == "gpt2_documents" || name == "chunks_biases_offset_limit" ||
                          name == "l2_temperature";
    engine = std::make_unique<Engine>(EngineInput{.plan = plan,
                                                  .train = read.config.train,
                                                  .optimizer = read.config.optimizer,
                                                  .lr_schedule = read.config.lr_schedule,
                                                  .separate_documents = separate,
                                                  .count_loss_weights = true},
                                      *world);
    ParamStore& store = engine->parameters();
    for (int i = 0; i < static_cast<int>(plan.stages.front().parameters.size()); ++i) {
      const Tensor from =
          file.at("param." + plan.stages.front().parameters[static_cast<std::size_t>(i)].name);
      const Tensor to = store.master(i);
      REQUIRE(from.shape == to.shape);
      std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes()));
    }
    batches = batches_of(file, micro_batch);
  }

  SafetensorsFile file;
  ReadResult read;
  Plan plan;
  std::unique_ptr<World> world;
  std::unique_ptr<Engine> engine;
  std::vector<Batch> batches;
};

}  // namespace

TEST_CASE("loss and every gradient agree with PyTorch") {
  for (const std::string name : case_names) {
    for (int micro_batch : {2, 1}) {
      INFO(name << ", micro-batch " << micro_batch);
      Case test(name, micro_batch);
      const StepReport report = test.engine->train_step(test.batches);
      CHECK(report.loss == Approx(test.file.at("loss").as<double>()[0]).epsilon(1e-5));
      ParamStore& store = test.engine->parameters();
      double model_largest = 0;
      for (const ParamSpec& spec : test.plan.stages.front().parameters) {
        model_largest = std::max(model_largest, largest(test.file.at("grad." + spec.name)));
      }
      for (const ParamSpec& spec : test.plan.stages.front().parameters) {
        INFO(spec.name);
        const Tensor expected = test.file.at("grad." + spec.name);
        const Tensor found = store.gradient(store.index_of(spec.name));
        // Where terms cancel (the bias of k has no gradient at all), rounding of the largest is
        // left.
        const double scale = std::max(largest(expected), 5e-3 * model_largest);
        CHECK(largest_difference(found, expected) / scale <= 1e-4);
      }
    }
  }
}

TEST_CASE("AdamW steps with clipping follow PyTorch") {
  for (const std::string name : case_names) {
    INFO(name);
    Case test(name, 2);
    const Tensor losses = test.file.at("adamw.loss");
    const Tensor norms = test.file.at("adamw.grad_norm");
    for (std::int64_t step = 0; step < losses.numel(); ++step) {
      const StepReport report = test.engine->train_step(test.batches);
      // Rounding errors grow from step to step, most where gradients are large.
      const double growth = step < 2 ? 1 : 10;
      CHECK(report.loss == Approx(losses.as<double>()[step]).epsilon(growth * 2e-5));
      CHECK(report.grad_norm == Approx(norms.as<double>()[step]).epsilon(growth * 2e-4));
    }
  }
}
