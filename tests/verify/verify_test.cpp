// Layouts against a single rank, number by number, and how a departure is named.
#include "verify/verify.h"

#include <limits>

#include "base/error.h"
#include "catch.h"
#include "faulty_world.h"
#include "sample_verify.h"
#include "thorough.h"
#include "verify/selection/selection.h"

using namespace trainctl;

namespace {

float& element(const Tensor& tensor, std::int64_t index) { return tensor.as<float>()[index]; }

}  // namespace

TEST_CASE("every layout of small models equals a single rank") {
  std::vector<std::int64_t> worlds{1, 2};
  if (!brief()) worlds.insert(worlds.end(), {4, 8});  // listing them takes long
  const std::size_t models = thorough() ? 1 : 2;      // that take turns
  std::size_t turn = 0;
  for (const Options& options : {small_gpt, small_llama}) {
    const ReadResult result = read_sample(options);
    const Verification verification(result.config, 2);
    for (const std::int64_t ranks : worlds) {
      if (models > 1 && ranks == (turn == 0 ? 4 : 8)) continue;
      const LayoutSelection selection = select_layouts(result.config, {}, ranks, false);
      CHECK(selection.chosen.size() >= 2);
      const auto few = static_cast<std::size_t>(stride(ranks == 8 ? 40 : ranks == 4 ? 12 : 2));
      const std::size_t step = ranks > 2 ? few : few * models;
      for (std::size_t i = turn % models; i < selection.chosen.size(); i += step) {
        const LayoutChoice& choice = selection.chosen[i];
        const Config own = with_layout(result.config, choice);
        const LayoutVerdict verdict = verification.compare({own, plan_of(own, ranks), 20});
        INFO(options[0] << " " << choice.name() << ": " << told(verdict));
        CHECK(verdict.equal);
        CHECK_FALSE(verdict.largest.what.empty());
      }
    }
    ++turn;
  }
}

TEST_CASE("stages that do not divide the layers, tied ends, odd sizes") {
  const Options odd{"model.num_layers=5",         "model.num_attention_heads=6",
                    "model.hidden_size=48",       "model.ffn_hidden_size=72",
                    "train.global_batch_size=12", "model.tie_word_embeddings=true"};
  for (const char* layout : some_of<const char*>(
           {"pp3", "tp3+vocab_dp+pp2+dp2", "tp2sp+pp3+dp2+gpipe", "tp2sp+dp3+zero1", "tp6+vocab_dp",
            "pp2+zb-v+m4", "tp2sp+pp2+zb-h1+m4+vp2+recompute", "pp5+zb-h1+m6"})) {
    const LayoutVerdict verdict = compare_sample(odd, layout);
    INFO(layout << ": " << told(verdict));
    CHECK(verdict.equal);
  }
}

TEST_CASE("more tensor ranks than rows of keys") {
  const Options narrow{"model.family=llama",          "model.qk_layernorm=true",
                       "model.num_attention_heads=8", "model.kv_channels=2",
                       "model.num_query_groups=2",    "model.make_vocab_size_divisible_by=8"};
  for (const char* layout : {"tp8", "tp8sp", "tp4sp+dp2+zero1"}) {
    const LayoutVerdict verdict = compare_sample(narrow, layout);
    INFO(layout << ": " << told(verdict));
    CHECK(verdict.equal);
  }
}

TEST_CASE("in 16 bits layouts round at other places, which is allowed for") {
  for (const char* type : {"precision.compute=bf16", "precision.compute=fp16"}) {
    for (Options options : {small_gpt, small_llama}) {
      options.emplace_back(type);
      for (const char* layout : {"tp8", "tp4sp+pp2", "pp4+dp2+zero1"}) {
        const LayoutVerdict verdict = compare_sample(options, layout);
        INFO(options[0] << " " << type << " " << layout << ": " << told(verdict));
        CHECK(verdict.equal);
      }
    }
  }
}

TEST_CASE("a gradient of values that cancel may depart as far as another rounding takes it") {
  const ReadResult read = read_config(TRAINCTL_SOURCE_DIR "/configs/verify-forms/post-norms.yaml",
                                      {"precision.compute=bf16", "model.tie_word_embeddings=true"});
  const Config config = with_layout(read.config, parse_layouts("cp2+m4", 0).front());
  const LayoutVerdict verdict =
      Verification(read.config, 3).compare({config, plan_of(config, 2), 20});
  INFO(told(verdict));
  CHECK(verdict.equal);
  CHECK(verdict.largest.error > half_bound);
}

TEST_CASE("a changed element is named with rank, index and both values", "[threads]") {
  const Faults faults{.gradients = [](int rank, std::int64_t step, ParamStore& store) {
    if (rank != 1 || step != 2) return;
    const Tensor gradient = store.gradient(store.index_of("layers.0.mlp.up.weight"));
    element(gradient, 3) += 1;
  }};
  const LayoutVerdict verdict = compare_sample(small_gpt, "tp2", faults);
  REQUIRE(verdict.first.has_value());
  const Departure& first = *verdict.first;
  CHECK(first.what == "gradient");
  CHECK(first.tensor == "layers.0.mlp.up.weight");
  CHECK(first.rank == 1);
  CHECK(first.step == 2);
  CHECK(first.index == std::vector<std::int64_t>{32, 3});  // ffn 64: rank 1 has rows 32 to 63
  CHECK(first.found == Approx(first.expected + 1));
  CHECK(first.place() == "gradient layers.0.mlp.up.weight[32, 3], step 2");
}

TEST_CASE("a changed activation is named with unit, sequence, token and feature", "[threads]") {
  // Rank 7 has the second half of the tokens of the second replica; 16 rows of 32 features.
  const std::vector<GroupFault> received{
      {.rank = 7,
       .group = "messages pp",
       .operation = GroupOperation::receive,
       .occurrence = 2,
       .act = with_output([](const Tensor& stream) { element(stream, 5 * 32 + 3) += 1; })}};
  const Faults faults{.world = [&](World& world) { return faulty_world(world, received); }};
  const LayoutVerdict verdict = compare_sample(small_gpt, "tp2sp+pp2+dp2+1f1b+m2", faults);
  REQUIRE(verdict.first.has_value());
  const Departure& first = *verdict.first;
  CHECK(first.rank == 7);
  CHECK(first.found == Approx(first.expected + 1));
  CHECK(first.place() == "activation layers.1[7, 5, 3], step 1");
}

TEST_CASE("a NaN departs") {
  const Faults faults{.gradients = [](int rank, std::int64_t, ParamStore& store) {
    if (rank == 0) element(store.made_gradients(), 0) = std::numeric_limits<float>::quiet_NaN();
  }};
  const LayoutVerdict verdict = compare_sample(small_gpt, "dp2", faults);
  REQUIRE(verdict.first.has_value());
  CHECK(verdict.first->what == "gradient");
  CHECK(verdict.first->error == std::numeric_limits<double>::infinity());
}

TEST_CASE("a replica that drifts is found after the step") {
  const Faults master{.parameters = [](int rank, std::int64_t step, ParamStore& store) {
    if (rank == 1 && step == 2) element(store.master(0), 7) += 0.01F;
  }};
  const LayoutVerdict drifted = compare_sample(small_gpt, "dp2", master);
  REQUIRE(drifted.first.has_value());
  CHECK(drifted.first->place() == "parameter embedding.token.weight[0, 7], step 2");
  const Faults state{.parameters = [](int rank, std::int64_t, ParamStore& store) {
    if (rank == 1) element(store.state(0, 1), 7) += 0.01F;
  }};
  const LayoutVerdict second = compare_sample(small_gpt, "dp2", state);
  REQUIRE(second.first.has_value());
  CHECK(second.first->place() == "optimizer state 2 of embedding.token.weight[0, 7], step 1");
}

TEST_CASE("a layout that ends early says why", "[threads]") {
  const Faults faults{.batches = [](int rank, std::int64_t step, std::vector<Batch>&) {
    if (rank == 1 && step == 2) throw Error(ExitCode::internal, "on purpose");
  }};
  const LayoutVerdict verdict = compare_sample(small_gpt, "tp2", faults);
  CHECK_FALSE(verdict.equal);
  CHECK_FALSE(verdict.first.has_value());
  CHECK(verdict.failure == "rank 1: on purpose");
}
