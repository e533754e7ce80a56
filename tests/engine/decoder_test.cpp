// Decoding with a KV cache against one pass over the whole text.
#include "engine/forward.h"
#include "plan/prepare/make_plan.h"

#include <cmath>

#include "catch.h"
#include "config/read/read.h"
#include "engine/parameters/param_store.h"
#include "sample_run.h"

using namespace trainctl;

namespace {

struct Small {
  explicit Small(const std::vector<std::string>& options)
      : read(read_config_text(sample_yaml(), "sample.yaml", options)),
        plan(make_plan(read.config, {}, read.sources, read.diagnostics)),
        world(self_world()),
        devices(*world, DeviceKind::cpu, 60),
        store(DeviceKind::cpu, plan.stages.front(), {.compute = plan.compute, .training = false}) {
    REQUIRE(!read.diagnostics.has_errors());
    store.initialise(decoder()->ops(), 3, plan.mesh, 0);
    for (int i = 0; i < static_cast<int>(plan.stages.front().parameters.size());
         ++i) {  // far from uniform logits
      const Tensor values = store.master(i);
      for (std::int64_t at = 0; at < values.numel(); ++at) values.as<float>()[at] *= 8.0F;
    }
  }

  std::unique_ptr<Decoder> decoder() {
    return std::make_unique<Decoder>(
        plan, devices, [this](const std::string& name) { return store.weight(name); });
  }

  ReadResult read;
  Plan plan;
  std::unique_ptr<World> world;
  DeviceWorld devices;
  ParamStore store;
};

std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most;
}

}  // namespace

TEST_CASE("token by token, in pieces and at once give the same logits") {
  const std::vector<std::vector<std::string>> models{
      {},
      {"model.family=llama", "model.num_query_groups=2", "model.qk_layernorm=true"},
      {"model.family=llama", "moe.num_experts=6", "moe.router_topk=2", "moe.capacity_factor=1",
       "moe.first_dense_layers=1"},
      {"model.family=llama",
       "model.layers=[{name: a, num_query_groups: 2, rotary_base: 500.0}, "
       "{name: b, use_rope: false, qk_layernorm: true, ffn_hidden_size: 40}]"},
      {"model.family=llama", "model.num_query_groups=2", "model.sliding_window=7",
       "model.attn_logit_softcapping=2", "model.final_logit_softcapping=3", "model.logit_scale=0.5",
       "model.norm_placement=both", "model.zero_centered_norm=true", "model.activation=quick_gelu",
       "model.glu_linear_offset=1", "model.embedding_multiplier=2.5", "model.qk_layernorm=true",
       "model.qk_layernorm_after_rope=true", "model.residual_multiplier=0.5"},
      {"model.family=llama", "model.norm_placement=post", "model.rotary_percent=0.5",
       "model.rotary_interleaved=true", "model.add_bias_linear=true", "model.qk_layernorm=true",
       "model.qk_layernorm_form=whole", "model.gated_linear_unit=false", "model.activation=relu2"},
      {"model.family=llama", "model.num_query_groups=2", "model.softmax_type=learnable",
       "model.attention_output_gate=true", "model.sliding_window=7",
       "model.attention_temperature={beta: 0.5, floor: 4}"},
      {"model.family=llama", "model.qk_layernorm=true", "model.qk_layernorm_form=l2",
       "model.layers=[{name: a}, {name: b, use_rope: false, qk_layernorm: false, softmax_type: "
       "learnable, attention_temperature: {beta: 0.5, floor: 4, add: 1}}]"}};
  for (const auto& options : models) {
    Small small(options);
    const std::vector<std::int32_t> tokens{5, 17, 3, 60, 0, 8, 44, 12, 9, 31, 2};
    const std::span<const std::int32_t> all(tokens);
    const auto at_once = small.decoder();
    const std::vector<float> expected = copy(at_once->advance(all));
    CHECK(expected.size() == 61);
    const auto stepwise = small.decoder();
    std::vector<float> found;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      found = copy(stepwise->advance(all.subspan(i, 1)));
    }
    CHECK(largest_difference(found, expected) < 1e-4);
    const auto pieces = small.decoder();
    pieces->advance(all.first(4));
    CHECK(largest_difference(copy(pieces->advance(all.subspan(4))), expected) < 1e-4);
    CHECK(pieces->seen() == 11);
    pieces->reset();
    std::vector<std::int32_t> other = tokens;
    other[1] = 18;
    CHECK(largest_difference(copy(pieces->advance(other)), expected) > 1e-2);
  }
}
