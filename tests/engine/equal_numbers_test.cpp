// Every layout that is built, against the single rank.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "catch.h"
#include "sample_run.h"
#include "thorough.h"

using namespace trainctl;

namespace {

const std::vector<std::vector<std::string>> models{
    {},
    {"model.hidden_dropout=0.1", "model.attention_dropout=0.1", "model.embedding_dropout=0.1"},
    {"data.reset_attention_mask=true"},
    {"optimizer.type=sgd", "lr_schedule.max_lr=0.3", "lr_schedule.min_lr=0.1"},
    {"optimizer.type=lion", "lr_schedule.max_lr=1e-3", "lr_schedule.min_lr=1e-4"},
    {"model.family=llama", "model.num_query_groups=2", "model.qk_layernorm=true"},
    {"model.family=llama",
     "model.layers=[{name: a, ffn_hidden_size: 48, num_query_groups: 2, rotary_base: 500.0}, "
     "{name: b, use_rope: false, qk_layernorm: true}]"},
    // Norms after the branches leave gradients near 0, whose rounding errors AdamW would magnify.
    {"model.family=llama", "model.num_query_groups=2", "model.sliding_window=5",
     "model.attn_logit_softcapping=2", "model.norm_placement=both", "model.logit_scale=0.5",
     "model.activation=quick_gelu", "model.residual_multiplier=0.5", "optimizer.eps=1e-4"},
    {"model.family=llama", "model.num_query_groups=2", "model.attention_output_gate=true",
     "model.qk_layernorm=true", "model.qk_layernorm_form=l2",
     "model.layers=[{name: a, softmax_type: learnable, sliding_window: 5}, {name: b, use_rope: "
     "false, qk_layernorm: false, attention_temperature: {beta: 0.5, floor: 4}}]"},
};

void check_close(const std::vector<StepReport>& found, const std::vector<StepReport>& expected,
                 double tolerance) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].loss == Approx(expected[i].loss).epsilon(tolerance));
    CHECK(found[i].grad_norm == Approx(expected[i].grad_norm).epsilon(10 * tolerance));
    CHECK(found[i].tokens == expected[i].tokens);
  }
}

}  // namespace

TEST_CASE("data parallel ranks give the losses of one rank") {
  for (const auto& options : models) {
    const auto alone = train_sample({.set_options = options, .ranks = 1, .steps = 8, .world = {}});
    CHECK(alone.back().loss < alone.front().loss);
    for (int ranks : some_of({2, 4, 8})) {
      INFO(ranks << " ranks, " << (options.empty() ? "" : options[0]));
      check_close(train_sample({.set_options = options, .ranks = ranks, .steps = 8, .world = {}}),
                  alone, 1e-5);
    }
  }
}

TEST_CASE("tensor parallel ranks give the losses of one rank") {
  const std::vector<std::vector<std::string>> layouts{
      {"parallel.tensor_parallel=2"},
      {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"},
      {"parallel.tensor_parallel=4", "parallel.sequence_parallel=true"},
      {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
       "parallel.vocab_emb_dp=true"},
      {"parallel.tensor_parallel=2", "parallel.vocab_emb_dp=true"},
  };
  for (const auto& options : models) {
    const auto alone = train_sample({.set_options = options, .ranks = 1, .steps = 8, .world = {}});
    for (const auto& layout : some_of(layouts)) {
      auto both = options;
      both.insert(both.end(), layout.begin(), layout.end());
      INFO(layout.back() << ", " << (options.empty() ? "" : options[0]));
      check_close(train_sample({.set_options = both, .ranks = 4, .steps = 8, .world = {}}), alone,
                  1e-5);
    }
  }
}

TEST_CASE("pipeline stages give the losses of one rank") {
  const std::vector<std::vector<std::string>> layouts{
      {"parallel.pipeline_stages=2"},
      {"parallel.pipeline_stages=4", "train.micro_batch_size=2"},
      {"parallel.pipeline_stages=2", "parallel.pipeline.scheduler=gpipe"},
      {"parallel.pipeline_stages=2", "parallel.tensor_parallel=2",
       "parallel.sequence_parallel=true"},
      {"parallel.pipeline_stages=2", "parallel.pipeline.layout=Ett|ttL"},
      {"parallel.pipeline_stages=4", "parallel.pipeline.layout=E|tt|tt|L"},
  };
  for (auto options : models) {
    options.push_back("model.num_layers=4");
    for (const char* tied : {"true", "false"}) {
      auto model = options;
      model.push_back(std::string("model.tie_word_embeddings=") + tied);
      const auto alone = train_sample({.set_options = model, .ranks = 1, .steps = 6, .world = {}});
      for (const auto& layout : some_of(layouts)) {
        // Untied: the first model in each layout, and each model in the first layout.
        const bool first = layout == layouts.front() || options.size() == 1;
        if (tied == std::string_view("false") && !first && !thorough()) continue;
        auto both = model;
        both.insert(both.end(), layout.begin(), layout.end());
        INFO(layout.front() << " " << layout.back() << ", " << options.front() << ", tied "
                            << tied);
        check_close(train_sample({.set_options = both, .ranks = 4, .steps = 6, .world = {}}), alone,
                    1e-5);
      }
    }
  }
}

TEST_CASE("gradient accumulation gives the losses of one micro-batch") {
  for (const auto& options : models) {
    const auto whole = train_sample({.set_options = options, .ranks = 1, .steps = 8, .world = {}});
    for (int size : some_of({1, 2})) {
      auto split = options;
      split.push_back("train.micro_batch_size=" + std::to_string(size));
      INFO("micro-batch " << size);
      check_close(train_sample({.set_options = split, .ranks = 1, .steps = 8, .world = {}}), whole,
                  1e-5);
      check_close(train_sample({.set_options = split, .ranks = 2, .steps = 8, .world = {}}), whole,
                  1e-5);
    }
  }
}

TEST_CASE("the same run twice is bit-identical", "[threads]") {
  for (int ranks : {1, 4}) {
    const auto first = train_sample({.set_options = {}, .ranks = ranks, .steps = 6, .world = {}});
    const auto second = train_sample({.set_options = {}, .ranks = ranks, .steps = 6, .world = {}});
    for (std::size_t i = 0; i < first.size(); ++i) {
      CHECK(first[i].loss == second[i].loss);
      CHECK(first[i].grad_norm == second[i].grad_norm);
    }
  }
}

TEST_CASE("what tensor-parallel ranks keep of a repeated layer changes no bit") {
  for (const char* family : {"gpt2", "llama"}) {
    for (const char* stream : {"false", "true"}) {
      const auto losses = [&](const std::vector<std::string>& more) {
        std::vector<std::string> options{
            "parallel.tensor_parallel=2", std::string("model.family=") + family,
            std::string("parallel.sequence_parallel=") + stream, "model.hidden_dropout=0.1"};
        options.insert(options.end(), more.begin(), more.end());
        std::vector<std::pair<double, double>> numbers;
        for (const StepReport& report :
             train_sample({.set_options = options, .ranks = 2, .steps = 2, .world = {}})) {
          numbers.emplace_back(report.loss, report.grad_norm);
        }
        return numbers;
      };
      INFO(family << ", sequence parallel " << stream);
      const auto usual = losses({});
      CHECK(losses({"recompute.enable=true"}) == usual);
      CHECK(losses({"recompute.enable=true", "recompute.mp_comm_recompute=false"}) == usual);
      CHECK(losses({"offload.enable=true", "offload.num_layers=1"}) == usual);
      CHECK(losses({"offload.enable=true", "offload.num_layers=1", "recompute.enable=true",
                    "recompute.mp_comm_recompute=false"}) == usual);
      CHECK(losses({"recompute.enable=true", "recompute.select=norm1+qkv+mlp",
                    "recompute.mp_comm_recompute=false"}) == usual);
      if (std::string(stream) == "true") continue;
      CHECK(losses({"recompute.enable=true", "recompute.slice_activation=true"}) == usual);
      CHECK(losses({"recompute.enable=true", "recompute.slice_activation=true",
                    "offload.enable=true", "offload.num_layers=1"}) == usual);
      CHECK(losses({"recompute.enable=true", "recompute.slice_activation=true",
                    "recompute.select=norms"}) == usual);
    }
  }
}

TEST_CASE("another seed, and dropout, change the numbers") {
  const auto plain = train_sample({.set_options = {}, .ranks = 1, .steps = 2, .world = {}});
  const auto seeded =
      train_sample({.set_options = {"train.seed=8"}, .ranks = 1, .steps = 2, .world = {}});
  const auto dropped = train_sample(
      {.set_options = {"model.hidden_dropout=0.1"}, .ranks = 1, .steps = 2, .world = {}});
  CHECK(plain[0].loss != seeded[0].loss);
  CHECK(plain[0].loss != dropped[0].loss);
}

TEST_CASE("bf16 stays near fp32") {
  const auto exact = train_sample({.set_options = {}, .ranks = 1, .steps = 10, .world = {}});
  const auto rounded = train_sample(
      {.set_options = {"precision.compute=bf16"}, .ranks = 1, .steps = 10, .world = {}});
  check_close(rounded, exact, 1e-2);
  CHECK(rounded[0].loss != exact[0].loss);
}

TEST_CASE("a loss that is not finite stops the run and names step, rank and tensor", "[threads]") {
  const std::vector<std::string> wild{"lr_schedule.max_lr=1e30", "lr_schedule.min_lr=1e30"};
  try {
    train_sample({.set_options = wild, .ranks = 2, .steps = 6, .world = {}});
    FAIL("the run did not stop");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::diverged);
    CHECK_THAT(error.what(), Catch::Contains("step ") && Catch::Contains("rank "));
  }
}

TEST_CASE("with on_bad_loss skip, bad updates are left out") {
  const auto reports =
      train_sample({.set_options = {"lr_schedule.max_lr=1e30", "lr_schedule.min_lr=1e30",
                                    "train.on_bad_loss=skip"},
                    .ranks = 1,
                    .steps = 4,
                    .world = {}});
  CHECK(reports.back().skipped);
}

TEST_CASE("the order of passes, recomputation and offloading do not change a bit") {
  const std::vector<std::string> stages{"parallel.pipeline_stages=2", "train.micro_batch_size=1",
                                        "model.num_layers=4", "model.hidden_dropout=0.1",
                                        "model.attention_dropout=0.1"};
  const auto losses = [&](const std::vector<std::string>& more) {
    std::vector<std::string> options = stages;
    options.insert(options.end(), more.begin(), more.end());
    std::vector<std::pair<double, double>> numbers;
    for (const StepReport& report :
         train_sample({.set_options = options, .ranks = 2, .steps = 3, .world = {}})) {
      numbers.emplace_back(report.loss, report.grad_norm);
    }
    return numbers;
  };
  const auto usual = losses({});
  CHECK(losses({"parallel.pipeline.scheduler=zb-h1"}) == usual);
  CHECK(losses({"recompute.enable=true"}) == usual);
  CHECK(losses({"recompute.layers_per_stage=[1, 2]", "recompute.enable=true",
                "parallel.pipeline.scheduler=zb-h1"}) == usual);
  for (const char* form :
       {"norms", "activations", "attention", "norms+attention+activations", "qkv", "projection",
        "norm2+mlp", "qkv+attention", "norm1+projection+mlp+activations"}) {
    INFO(form);
    CHECK(losses({"recompute.enable=true", std::string("recompute.select=") + form,
                  "parallel.pipeline.scheduler=zb-h1"}) == usual);
  }
  CHECK(losses({"recompute.enable=true",
                "recompute.layers=full, norms+activations, none, attention+mlp"}) == usual);
  const std::string partial = "recompute.num_microbatches_with_partial_activation_checkpoints=1";
  CHECK(losses({"recompute.enable=true", partial}) == usual);
  CHECK(losses({"recompute.enable=true", "recompute.layers_per_stage=[1, 2]", partial,
                "recompute.select=norms+mlp", "parallel.pipeline.scheduler=zb-h1"}) == usual);
  const std::vector<std::string> host{"offload.enable=true", "offload.num_layers=3"};
  const auto offloaded = [&](std::vector<std::string> more) {
    more.insert(more.end(), host.begin(), host.end());
    return losses(more);
  };
  CHECK(offloaded({}) == usual);
  CHECK(offloaded({"offload.double_buffering=true"}) == usual);
  CHECK(offloaded({"parallel.pipeline.scheduler=zb-h1", "recompute.enable=true",
                   "recompute.select=norms+activations"}) == usual);
  CHECK(offloaded({"recompute.enable=true", partial, "offload.double_buffering=true"}) == usual);
  const std::string bf16 = "precision.compute=bf16";
  const auto narrow = losses({bf16});
  CHECK(narrow != usual);
  for (const char* buffers : {"false", "true"}) {
    const std::string double_buffering = std::string("offload.double_buffering=") + buffers;
    CHECK(offloaded({bf16, "offload.weights=true", double_buffering}) == narrow);
    CHECK(offloaded({bf16, "offload.weights=true", "offload.activations=false", double_buffering,
                     "recompute.enable=true", "parallel.pipeline.scheduler=zb-h1"}) == narrow);
  }
  const auto chunks = losses({"parallel.virtual_pipeline_stages=2"});
  CHECK(chunks == offloaded({"parallel.virtual_pipeline_stages=2"}));
  CHECK(chunks == losses({"parallel.virtual_pipeline_stages=2", "recompute.enable=true", partial}));
  CHECK(chunks ==
        losses({"parallel.virtual_pipeline_stages=2", "parallel.pipeline.overlap_p2p_comm=true",
                "parallel.pipeline.scheduler=zb-h1"}));
}

TEST_CASE("gradients of an earlier step are never read") {
  const auto make_nan = [](Engine& engine, const Plan&, World&) {
    const Tensor gradients = engine.parameters().made_gradients();
    std::fill_n(gradients.as<float>(), gradients.numel(), std::numeric_limits<float>::quiet_NaN());
  };
  const std::vector<std::vector<std::string>> layouts{
      {"train.micro_batch_size=2"},
      {"model.family=llama", "model.num_query_groups=2", "model.tie_word_embeddings=false"},
      {"parallel.gradient_accumulation_fusion=false"},
      {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true"},
      {"model.num_layers=4", "parallel.pipeline_stages=2", "parallel.pipeline.scheduler=zb-v",
       "parallel.virtual_pipeline_stages=2"},
      {"parallel.parallel_optimizer.enable=true"},
      {"parallel.parallel_optimizer.enable=true",
       "parallel.parallel_optimizer.optimizer_level=level2", "train.micro_batch_size=2"},
      {"moe.num_experts=4", "moe.router_topk=1", "moe.shared_expert_intermediate_size=32",
       "model.add_bias_linear=false"},
  };
  for (const auto& options : layouts) {
    INFO(options.front());
    const SampleRun run{.set_options = options, .ranks = 2, .steps = 2, .world = {}};
    SampleRun poisoned = run;
    poisoned.prepare = make_nan;
    check_close(train_sample(poisoned), train_sample(run), 0);
  }
}
