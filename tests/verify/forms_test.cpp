// Layouts of models that have forms beyond GPT-2's and Llama's, and mistakes in where a form acts.
#include <functional>
#include <utility>

#include "catch.h"
#include "sample_faults.h"
#include "sample_verify.h"
#include "thorough.h"

using namespace trainctl;

namespace {

/// Windows, caps, 1 + weight and a scaled embedding that the output layer shares.
const Options capped{"model.family=llama",
                     "model.num_layers=4",
                     "model.num_attention_heads=8",
                     "model.num_query_groups=2",
                     "model.kv_channels=12",
                     "model.tie_word_embeddings=true",
                     "model.sliding_window=5",
                     "model.attn_logit_softcapping=2",
                     "model.final_logit_softcapping=3",
                     "model.softmax_scale=0.4",
                     "model.embedding_multiplier=2.5",
                     "model.zero_centered_norm=true",
                     "model.activation=gelu",
                     "model.qk_layernorm=true",
                     "model.rotary_percent=0.5",
                     "model.rope_scaling={type: linear, factor: 2}"};

/// Chunks of documents, neighbours in pairs, all biases, a limited gate, a scaled branch.
const Options chunked{"model.family=llama",
                      "model.num_layers=4",
                      "model.num_attention_heads=8",
                      "model.num_query_groups=2",
                      "model.attention_chunk_size=6",
                      "model.rotary_interleaved=true",
                      "model.add_bias_linear=true",
                      "model.activation=quick_gelu",
                      "model.glu_linear_offset=1",
                      "model.activation_func_clamp_value=2.5",
                      "model.residual_multiplier=0.5",
                      "model.logit_scale=0.25",
                      "model.rope_scaling={type: alpha, alpha: 50}",
                      "data.reset_attention_mask=true",
                      "data.reset_position_ids=true"};

/// No gate, some biases, a window as long as a piece of a sequence over two ranks, and one more.
const Options ungated{
    "model.family=llama",
    "model.num_layers=4",
    "model.num_attention_heads=8",
    "model.gated_linear_unit=false",
    "model.activation=relu2",
    "model.add_out_bias=true",
    "model.sliding_window=17",
    "model.hidden_dropout=0.1",
    "model.residual_multiplier=0.5",
    "model.rope_scaling={type: yarn, factor: 8, original_max_position_embeddings: "
    "16}"};

/// Experts with biases of both factors of a limited gate.
const Options of_experts = with(chunked, {"moe.num_experts=4", "moe.router_topk=2",
                                          "moe.ffn_hidden_size=24", "moe.layer_frequency=2"});

/// Norms before and after, those of q and k after RoPE.
const Options both_norms = with(capped, {"model.norm_placement=both", "model.hidden_dropout=0.1",
                                         "model.qk_layernorm_after_rope=true"});

/// Norms after the branches alone.
const Options post_norms{"model.family=llama",           "model.num_layers=4",
                         "model.num_attention_heads=8",  "model.num_query_groups=2",
                         "model.norm_placement=post",    "model.qk_layernorm=true",
                         "model.residual_multiplier=0.5"};

/// Sinks, a gate of the output, q/k norms without weights, and queries that grow with their
/// position in the layers without RoPE, over documents.
const Options gated_output{
    "model.family=llama",
    "model.num_layers=4",
    "model.num_attention_heads=8",
    "model.num_query_groups=2",
    "model.attention_output_gate=true",
    "model.qk_layernorm=true",
    "model.qk_layernorm_form=l2",
    "model.layers=[{name: near, softmax_type: learnable, sliding_window: 5}, {name: far, use_rope: "
    "false, qk_layernorm: false, attention_temperature: {beta: 0.5, floor: 4, add: 1}}]",
    "data.reset_attention_mask=true",
    "data.reset_position_ids=true"};

/// That model with q/k norms over all heads, which tensor-parallel ranks divide.
const Options whole_norms = with(post_norms, {"model.qk_layernorm_form=whole"});

/// Layers that differ only in what they see and how they turn.
const Options two_kinds{
    "model.family=llama", "model.num_layers=4", "model.num_attention_heads=8",
    "model.layers=[{name: near, sliding_window: 5}, {name: far, rotary_base: 500.0}]"};

const std::vector<std::string> usual_layouts{"tp2sp+dp2", "cp2+p2p+dp2", "pp2+tp2+m4"};

}  // namespace

TEST_CASE("models with windows, caps and multipliers are equal in every layout") {
  check_equal(capped, {"tp2sp+dp2", "tp4", "cp4+p2p", "cp2+a2a", "cp4+all_gather", "cp4+a2a_p2p",
                       "pp4+m4", "pp2+vp2+zb-h1+m4", "dp4+zero3"});
  check_equal(with(capped, in_bf16), usual_layouts);
  check_free(capped, {"tp2sp+cp2"});
}

TEST_CASE("models with chunks, biases and limited gates are equal in every layout") {
  check_equal(chunked, {"tp2sp+dp2", "tp8", "cp2+p2p+m2", "cp4+a2a_p2p", "cp2+all_gather",
                        "pp2+tp2+recompute", "dp2+zero1"});
  check_equal(with(chunked, in_bf16), usual_layouts);
}

TEST_CASE("models with sinks, gated outputs and temperatures are equal in every layout") {
  check_equal(gated_output, {"tp2sp+dp2", "tp4", "tp8+recompute", "cp2+p2p", "cp4+p2p+dp2",
                             "cp2+a2a", "cp4+a2a_p2p", "cp2+all_gather", "pp2+m4+zb-h1",
                             "pp4+tp2+m4", "tp2sp+pp2+selective", "dp4+zero3+recompute"});
  check_equal(with(gated_output, in_bf16), usual_layouts);
}

TEST_CASE("models without gates and with a scaled branch are equal in every layout") {
  check_equal(ungated, {"tp2sp+dp2", "cp2+p2p", "cp4+p2p", "pp2+m4+zb-h1", "tp2+selective"});
  check_equal(with(ungated, in_bf16), usual_layouts);
}

TEST_CASE("experts with biases and a limited gate are equal in every layout") {
  check_equal(of_experts, {"tp2sp+dp2+ep2", "dp4+ep4", "pp2+m4"});
}

TEST_CASE("models with norms after the branches are equal in every layout") {
  check_equal(both_norms, {"tp2sp+dp2", "tp2+recompute", "cp2+p2p", "pp2+m4+zb-h1",
                           "tp2sp+pp2+selective", "dp2+zero3+recompute"});
  check_equal(post_norms, {"tp2sp+dp2", "tp2+recompute", "cp2+a2a", "pp2+m4+zb-h1",
                           "tp2sp+pp2+selective", "dp2+zero3+recompute", "tp2+sliced"});
  check_equal(with(post_norms, in_bf16), usual_layouts);
  check_equal(with(of_experts, {"model.norm_placement=both"}), {"tp2sp+dp2+ep2", "pp2+m4"});
  check_equal(whole_norms, {"cp2+p2p+dp2", "cp4+a2a_p2p", "pp2+m4", "dp2+zero2", "tp2sp+dp2", "tp2",
                            "tp8", "tp4+recompute", "tp2+cp2", "tp2sp+pp2+selective"});
  check_equal(with(whole_norms, in_bf16), {"tp2sp+dp2", "tp4"});
}

TEST_CASE("a form that a layout applies otherwise is found") {
  const auto of_model = [](std::function<void(ModelShape&)> change) {
    return of_plan([change = std::move(change)](Plan& plan) { change(plan.model); });
  };
  const auto row = [&](const char* name, const Options& model, const char* layout,
                       std::function<void(ModelShape&)> change) {
    return FaultRow{name, model, layout, of_model(std::move(change)), "", "", -1};
  };
  check_faults({
      row("a window one token short", capped, "cp2+p2p",
          [](ModelShape& model) { --model.kinds.front().limits.window; }),
      row("a cap of other scores", capped, "tp2sp+dp2",
          [](ModelShape& model) { model.attention_cap *= 1.25; }),
      row("logits capped before they are scaled", chunked, "pp2+m4",
          [](ModelShape& model) { model.logit_scale = 1; }),
      row("an embedding that is not scaled", capped, "tp2sp+dp2",
          [](ModelShape& model) { model.embedding_multiplier = 1; }),
      row("chunks that begin elsewhere", chunked, "cp2+all_gather",
          [](ModelShape& model) { model.kinds.front().limits.chunk = 5; }),
      row("halves for neighbours", chunked, "tp2sp+dp2",
          [](ModelShape& model) { model.ropes.front().interleaved = false; }),
      row("a branch that is not scaled", ungated, "pp2+m4",
          [](ModelShape& model) { model.residual_multiplier = 1; }),
      row("weights for 1 + weight", capped, "dp2",
          [](ModelShape& model) { model.zero_centered_norm = false; }),
      row("positions of another temperature", gated_output, "cp2+p2p",
          [](ModelShape& model) { model.temperatures.front().floor = 5; }),
      row("a q/k norm that is left out", gated_output, "pp2+m4",
          [](ModelShape& model) { model.kinds.front().qk_norm = false; }),
      row("kinds by other numbers of layers", two_kinds, "pp2+m4",
          [](ModelShape& model) { std::swap(model.kind_of_layer[2], model.kind_of_layer[3]); }),
      row("the RoPE of another kind", two_kinds, "pp2+m4",
          [](ModelShape& model) { std::swap(model.kinds[0].rope, model.kinds[1].rope); }),
      {"the sums of a divided norm left out", whole_norms, "tp2",
       on_all(2, layers_tp(GroupOperation::all_reduce, 2, left_out())), "activation", "layers.0"},
      row("an offset that is missing", chunked, "dp2",
          [](ModelShape& model) { model.gate_offset = 0; }),
  });
}

TEST_CASE("all layouts of models with forms of their own", "[thorough]") {
  if (!thorough()) return;
  for (const Options& model : {capped, chunked, ungated, both_norms, post_norms, gated_output}) {
    check_equal(model, {"tp2sp+cp2+dp2", "tp2+cp4", "cp8+p2p", "cp8+a2a", "cp8+all_gather",
                        "pp2+cp4+m4", "pp4+tp2+m4", "dp8+zero3", "tp8", "dp8"});
  }
}
