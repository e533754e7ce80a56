// Whole MindFormers files: which model they are, and that no key of theirs is lost.
#include <algorithm>

#include "catch.h"
#include "config/migrate/migrate.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

const std::string other_sections =
    "runner_config: {epochs: 1, batch_size: 2}\n"
    "optimizer: {type: AdamW, betas: [0.9, 0.95], eps: 1.0e-8}\n"
    "lr_schedule: {type: ConstantWarmUpLR, learning_rate: 1.0e-4, warmup_ratio: 0}\n"
    "parallel_config: {data_parallel: 2}\n"
    "train_dataset: {data_loader: {dataset_dir: words.txt}}\n";
const std::string file_sizes =
    "vocab_size: 256, hidden_size: 64, intermediate_size: 160, num_hidden_layers: 2, "
    "num_attention_heads: 4, num_key_value_heads: 2, seq_length: 32";

ReadResult file_with(const std::string& model, const std::string& more = "") {
  return read(other_sections + more + "model: {model_config: {" + file_sizes +
              (model.empty() ? "" : ", ") + model + "}}\n");
}

std::vector<std::string> errors_in(const ReadResult& result) {
  std::vector<std::string> list;
  for (const Diagnostic& one : result.diagnostics.list()) {
    if (one.severity == Severity::error) list.push_back(one.code + " " + one.path);
  }
  return list;
}
using List = std::vector<std::string>;

const std::string qwen3_model =
    "model_type: qwen3, hidden_act: swiglu, rms_norm_eps: 1.0e-6, "
    "rope_theta: 1000000.0, position_embedding_type: rope";

}  // namespace

TEST_CASE("the name of a model decides its family and what belongs to it") {
  const ReadResult dense = file_with(qwen3_model + ", architectures: [Qwen3ForCausalLM]");
  CHECK(errors_in(dense) == List{});
  CHECK(dense.config.model.family == Family("llama"));
  CHECK(dense.config.model.qk_layernorm);
  CHECK(dense.config.model.norm_epsilon == 1e-6);
  CHECK(dense.config.model.rotary_base == 1e6);
  CHECK(dense.config.moe.num_experts == 1);
  const ReadResult qwen2 = file_with("model_type: qwen2");
  CHECK(qwen2.config.model.add_qkv_bias == true);
  CHECK_FALSE(qwen2.config.model.qk_layernorm);
  CHECK(file_with("type: LlamaConfig").config.model.family == Family("llama"));
  CHECK(file_with("type: GPT2Config").config.model.family == Family("gpt2"));
  CHECK(file_with("architectures: MistralForCausalLM").config.model.family == Family("llama"));
}

TEST_CASE("experts in the model's section are read") {
  const ReadResult result = file_with(
      "model_type: qwen3_moe, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 48, "
      "n_shared_experts: 2, norm_topk_prob: True, router_aux_loss_coef: 0.01, "
      "moe_router_load_balancing_type: seq_aux_loss, first_k_dense_replace: 1, "
      "moe_grouped_gemm: True, routed_scaling_factor: 1.5");
  CHECK(errors_in(result) == List{});
  const MoeConfig& moe = result.config.moe;
  CHECK(moe.num_experts == 8);
  CHECK(moe.router_topk == 2);
  CHECK(moe.ffn_hidden_size == 48);
  CHECK(moe.shared_expert_intermediate_size == 96);
  CHECK(moe.first_dense_layers == 1);
  CHECK(moe.aux_loss_factor == 0.01);
  CHECK(moe.router_topk_scaling_factor == 1.5);
  CHECK(moe.router_pre_softmax == false);
  // Without a factor there is no loss there.
  CHECK(file_with("model_type: qwen3_moe, num_experts: 8, num_experts_per_tok: 2")
            .config.moe.router_load_balancing_type == LoadBalancing("none"));
  CHECK(file_with(
            "model_type: qwen3_moe, num_experts: 8, num_experts_per_tok: 2, norm_topk_prob: False")
            .config.moe.router_pre_softmax == true);
}

TEST_CASE("no file is valid as another model") {
  const char* const refused[] = {
      "",  // nothing says which
      "model_type: gemma2",
      "model_type: deepseek_v3",
      "type: TelechatConfig",
      "type: ChatGLM2Config",
      "architectures: [DeepseekV3ForCausalLM]",
      "model_type: qwen3, architectures: [LlamaForCausalLM]",
      "type: GPT2Config, rms_norm_eps: 1.0e-6",
      "type: LlamaConfig, hidden_act: gelu",
      "type: LlamaConfig, position_embedding_type: learned_absolute",
      "type: LlamaConfig, normalization: LayerNorm",
      "type: LlamaConfig, hidden_act: relu",
      "type: LlamaConfig, position_embedding_type: alibi",
      "position_embedding_type: rope",
      "rms_norm_eps: 1.0e-6, hidden_act: gelu",
      "type: LlamaConfig, multi_latent_attention: True",
      "type: LlamaConfig, kv_lora_rank: 512",
      "type: LlamaConfig, sliding_window: 128",
      "type: LlamaConfig, use_sliding_window: True",
      "type: LlamaConfig, attention_pre_tokens: 4096",
      "type: LlamaConfig, sparse_mode: 4",
      "type: LlamaConfig, mtp_num_layers: 1",
      "type: LlamaConfig, extend_method: YARN, scaling_factor: {factor: 4}",
      "type: LlamaConfig, attn_proj_has_bias: True",
      "type: LlamaConfig, attention_bias: True",
      "type: LlamaConfig, parallel_residual: True",
      "model_type: qwen3_moe",
      "model_type: qwen3, num_experts: 8, num_experts_per_tok: 2",
      "model_type: qwen3_moe, num_experts: 8",
      "type: LlamaConfig, num_experts: 8, num_experts_per_tok: 2, scoring_func: tanh",
      "type: LlamaConfig, checkpoint_name_or_path: llama.ckpt",
      "model_type: qwen3_moe, num_experts: 8, num_experts_per_tok: 2, router_aux_loss_coef: 0.1, "
      "moe_router_load_balancing_type: gbs_aux_loss",
      "type: LlamaConfig, softmax_scale: 0.1",
      "type: LlamaConfig, tie_word_embeddings: True, untie_embeddings_and_output_weights: True"};
  for (const char* model : refused) {
    CAPTURE(model);
    CHECK_FALSE(errors_in(file_with(model)).empty());
    CHECK_FALSE(migrate_config(
                    other_sections + "model: {model_config: {" + file_sizes + ", " + model + "}}\n",
                    "t.yaml")
                    .ok);
  }
  CHECK(errors_in(file_with("type: LlamaConfig, offset: [[1, 0], [0, 1]]")) ==
        List{"wrong-type parallel.pipeline.offset"});
  CHECK(file_with("type: LlamaConfig, rotary_percent: 0.5").config.model.rotary_percent == 0.5);
  // Keys of windows that there are none in.
  CHECK(errors_in(file_with("type: LlamaConfig, use_sliding_window: False, max_window_layers: 28, "
                            "attention_pre_tokens: 2147483647, sparse_mode: 0")) == List{});
  // Two marks without a name, and none against them.
  CHECK(file_with("rms_norm_eps: 1.0e-6, hidden_act: silu").config.model.family == Family("llama"));
}

TEST_CASE("sizes that several keys give") {
  const std::string llama = "type: LlamaConfig, ";
  CHECK(errors_in(file_with(llama + "offset: 0, scaling_factor: 1.0, extend_method: \"None\"")) ==
        List{});
  CHECK(file_with(llama + "offset: [1, -1]").config.parallel.pipeline.offset == IntList{1, -1});
  const ReadResult wide = read(other_sections +
                               "model: {model_config: {type: LlamaConfig, vocab_size: 256, "
                               "hidden_size: 8192, num_layers: 2, num_heads: 64, seq_length: 32, "
                               "ffn_dim_multiplier: 1.3, multiple_of: 256}}\n");
  CHECK(wide.config.model.ffn_hidden_size == 28672);  // Llama 3.1 70B
  const ReadResult rope =
      file_with(llama +
                "extend_method: LLAMA3, scaling_factor: {factor: 8.0, low_freq_factor: 1.0, "
                "high_freq_factor: 4.0, original_max_position_embeddings: 8192}");
  CHECK(errors_in(rope) == List{});
  CHECK(rope.config.model.rope_scaling.factor == 8);
  CHECK(rope.config.model.rope_scaling.original_max_position_embeddings == 8192);
  CHECK(file_with(llama + "untie_embeddings_and_output_weights: True")
            .config.model.tie_word_embeddings == false);
}

TEST_CASE("the batch has all micro-batches, and the optimizer MindFormers' defaults") {
  CHECK(file_with("type: LlamaConfig").config.train.global_batch_size == 4);
  const ReadResult interleaved = file_with("type: LlamaConfig", "micro_batch_interleave_num: 2\n");
  CHECK(interleaved.config.train.global_batch_size == 8);
  CHECK(interleaved.config.train.micro_batch_num == 2);
  const std::string stages =
      "parallel_config: {data_parallel: 2, pipeline_stage: 2, "
      "micro_batch_num: 4}\nmicro_batch_interleave_num: 2\n";
  const ReadResult staged = read("runner_config: {batch_size: 2, stop_step: 5}\n" + stages +
                                 good_model + good_data + good_lr);
  CHECK(errors_in(staged) == List{});
  CHECK(staged.config.train.global_batch_size == 32);
  CHECK(staged.config.train.micro_batch_num == 8);
  const ReadResult alone = read(
      "use_parallel: False\nrunner_config: {batch_size: 2, stop_step: 5, "
      "gradient_accumulation_steps: 3}\n" +
      good_model + good_data + good_lr);
  CHECK(alone.config.train.micro_batch_num == 3);
  const OptimizerConfig& optimizer = file_with("type: LlamaConfig").config.optimizer;
  CHECK(optimizer.weight_decay == 0);
  CHECK(optimizer.beta2 == 0.95);
}

TEST_CASE("a blend of Megatron's data sets, and its length") {
  const ReadResult result = read(
      "runner_config: {epochs: 2, batch_size: 2}\nparallel_config: {data_parallel: 2}\n"
      "train_dataset: {data_loader: {type: BlendedMegatronDatasetDataLoader, sizes: [10, 0, 0], "
      "config: {data_path: ['0.3', a, '0.7', b], split: \"1, 0, 0\", eod_mask_loss: True, "
      "seq_length: 32}}}\n" +
      good_model + good_lr);
  CHECK(errors_in(result) == List{});
  CHECK(result.config.data.train == std::vector<DataSource>{{"a", 0.3}, {"b", 0.7}});
  CHECK(result.config.train.steps == 4);  // 2 x floor(10 / 4)
  CHECK(result.config.data.eod_mask_loss);
}

TEST_CASE("a key that changes the run is an error, a neutral value passes") {
  for (const char* line :
       {"load_checkpoint: x.ckpt", "resume_training: True", "run_mode: predict", "lr_scale: True",
        "only_save_strategy: True", "pretrained_model_dir: models/a", "auto_tune: True",
        "ignore_data_skip: True", "src_strategy_path_or_dir: s.ckpt", "layer_scale: True",
        "swap_config: {swap: True}"}) {
    CAPTURE(line);
    const auto found = errors_in(file_with("type: LlamaConfig", std::string(line) + "\n"));
    REQUIRE(found.size() == 1);
    CHECK(found.front().starts_with("no-counterpart "));
  }
  for (const char* line :
       {"load_checkpoint: ''", "resume_training: False", "run_mode: train", "lr_scale: False",
        "only_save_strategy: False", "micro_batch_interleave_num: 1", "src_strategy_path_or_dir:",
        "auto_trans_ckpt: True", "callbacks: [{type: A}]", "profile: True"}) {
    CAPTURE(line);
    CHECK(errors_in(file_with("type: LlamaConfig", std::string(line) + "\n")) == List{});
  }
}

}  // namespace trainctl::test

namespace trainctl::test {

TEST_CASE("Muon of MindFormers with its defaults") {
  const std::string rest = other_sections.substr(other_sections.find("lr_schedule"));
  const auto with_muon = [&](const std::string& keys) {
    return read("runner_config: {epochs: 1, batch_size: 2}\n" + rest + "optimizer: {type: Muon" +
                keys + "}\nmodel: {model_config: {" + file_sizes + ", " + qwen3_model +
                ", num_experts: 4, num_experts_per_tok: 2, "
                "moe_intermediate_size: 48}}\n");
  };
  const ReadResult plain = with_muon("");
  CAPTURE(render_text(plain.diagnostics, false));
  const OptimizerConfig& optimizer = plain.config.optimizer;
  CHECK(optimizer.type == OptimizerType::muon);
  CHECK(optimizer.weight_decay == 0);
  CHECK(optimizer.beta1 == 0.95);
  CHECK(optimizer.beta2 == 0.95);
  CHECK(optimizer.muon.scale == MuonScale("spectral"));
  CHECK(optimizer.muon.scale_factor == 0.2);
  CHECK(optimizer.muon.coefficients.set == MuonSet("simple"));
  CHECK(optimizer.muon.steps == 5);
  CHECK(optimizer.muon.ns_dtype == MuonProducts("bf16"));
  REQUIRE(optimizer.groups.size() == 1);
  CHECK(optimizer.groups[0].match == List{"*.router.weight"});
  CHECK(optimizer.groups[0].type == OptimizerType::muon);

  const ReadResult rich = with_muon(
      ", weight_decay: 0.1, momentum: 0.9, nesterov: False, matched_adamw_rms: 0.3, ns_steps: 8, "
      "ns_coefficients: [[[3.4445, -4.7750, 2.0315], 8], [[2.0, -1.5, 0.5], 2]], "
      "adamw_betas: [0.9, 0.99], adamw_eps: 1.0e-9, use_fused_adamw: True, swap: False, "
      "qk_clip_enabled: False, adamw_include: ['*word_embeddings*', '*output_layer*']");
  CAPTURE(render_text(rich.diagnostics, false));
  CHECK(errors_in(rich) == errors_in(plain));
  const MuonConfig& muon = rich.config.optimizer.muon;
  CHECK(rich.config.optimizer.weight_decay == 0.1);
  CHECK(rich.config.optimizer.beta2 == 0.99);
  CHECK(rich.config.optimizer.eps == 1e-9);
  CHECK(muon.momentum == 0.9);
  CHECK_FALSE(muon.nesterov);
  CHECK(muon.scale_factor == 0.3);
  REQUIRE(muon_steps(muon).size() == 10);
  CHECK(muon_steps(muon)[7] == MuonTriple{3.4445, -4.7750, 2.0315});
  CHECK(muon_steps(muon)[8] == MuonTriple{2, -1.5, 0.5});
  const ReadResult off = with_muon(", qk_clip_threshold: 50");
  CHECK_FALSE(off.config.optimizer.qk_clip_threshold);
  CHECK(std::ranges::count_if(off.diagnostics.list(), [](const Diagnostic& one) {
          return one.path == "optimizer.qk_clip_threshold" &&
                 one.message == "ignored: it counts only with qk_clip_enabled: True";
        }) == 1);
  CHECK(with_muon(", qk_clip_enabled: True").config.optimizer.qk_clip_threshold == 100);
  CHECK(with_muon(", qk_clip_enabled: True, qk_clip_threshold: 50")
            .config.optimizer.qk_clip_threshold == 50);
  CHECK(with_muon(", ns_coefficients: [3, -2, 1], ns_steps: 3").config.optimizer.muon.steps == 3);

  const ReadResult wrong =
      with_muon(", swap: True, adamw_include: ['*norm*'], ns_coefficients: [1, 2]");
  const List errors = errors_in(wrong);
  for (const char* key : {"swap", "adamw_include", "ns_coefficients"}) {
    CAPTURE(key);
    CHECK(std::ranges::count(errors, "no-counterpart optimizer." + std::string(key)) == 1);
  }
}

TEST_CASE("LLaMA-Factory's Muon is read in any file") {
  const ReadResult result = read(
      "model: {family: gpt2, num_layers: 2, hidden_size: 32, num_attention_heads: 4, seq_length: "
      "16, vocab_size: 61}\ndata: {train: none}\ntrain: {steps: 2, global_batch_size: 2}\n"
      "lr_schedule: {max_lr: 1.0e-3}\n"
      "optim_config: {name: muon, wd: 0.1, momentum: 0.9, nesterov: true, ns_steps: 4, "
      "adamw_betas: [0.9, 0.95], adamw_eps: 1.0e-8}\n");
  CAPTURE(render_text(result.diagnostics, false));
  CHECK(errors_in(result) == List{});
  const OptimizerConfig& optimizer = result.config.optimizer;
  CHECK(optimizer.type == OptimizerType::muon);
  CHECK(optimizer.weight_decay == 0.1);
  CHECK(optimizer.beta2 == 0.95);
  CHECK(optimizer.muon.momentum == 0.9);
  CHECK(optimizer.muon.steps == 4);
  CHECK(optimizer.muon.scale == MuonScale("match_adamw"));
  CHECK(optimizer.muon.coefficients.set == MuonSet("simple"));
  REQUIRE(optimizer.groups.size() == 1);
  CHECK(optimizer.groups[0].match == List{"*"});
  CHECK(optimizer.groups[0].wd_mult == 1);
  const OptimizerConfig plain = read("optim_config: {name: muon}\n").config.optimizer;
  CHECK(plain.weight_decay == 0.1);
  CHECK(plain.beta1 == 0.9);
  CHECK(plain.beta2 == 0.95);
  const ReadResult other = read("optim_config: {name: badam}\n");
  CHECK(std::ranges::count(errors_in(other), "unknown-key optim_config") == 1);
}

}  // namespace trainctl::test
