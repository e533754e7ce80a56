// Values that people write for keys of ours and that these do not take: what to write instead.
#include "config/upstream/other_keys.h"

namespace trainctl {
namespace {

constexpr OtherKey rows[] = {
    {"model.family", "model.family=llama",
     "LlamaForCausalLM=llama|MistralForCausalLM=llama|mixtral=llama|MixtralForCausalLM=llama"},
    {"model.family", "model.family=gpt2", "GPT2LMHeadModel=gpt2|GPTModel=gpt2|nanogpt=gpt2"},
    {"model.family", "model.family=llama model.add_qkv_bias=true",
     "qwen2=true|qwen2.5=true|Qwen2ForCausalLM=true"},
    {"model.family", "model.family=llama model.qk_layernorm=true",
     "qwen3=true|qwen3_moe=true|Qwen3ForCausalLM=true|Qwen3MoeForCausalLM=true"},
    {"model.family", "",
     "gemma=|gemma2=|gemma3=|phi=|phi3=|bert=|t5=|falcon=|bloom=|opt=|neox=|gpt_neox=|gptj=|olmo=|"
     "olmo2=|deepseek=|deepseek_v2=|deepseek_v3=|mamba=|glm=|glm4=|chatglm=|gpt_oss=|granite=|"
     "starcoder2=",
     "use gpt2 or llama: this family is not built"},
    {"data.tokenizer", "data.tokenizer", "#tokenizer"},
    {"data.tokenizer", "data.tokenizer=byte", "char=byte|chars=byte|character=byte|none=byte"},
    {"data.tokenizer", "", "*",
     "use hf:FOLDER, where FOLDER holds a tokenizer.json, or sentencepiece:FILE"},
    {"data.validation", "data.validation.fraction=0",
     "none=0|None=0|false=0|False=0|no=0|off=0|0=0"},
    {"data.validation", "",
     "true=|True=|yes=|on=", "use data.validation.fraction or data.validation.path"},
    {"data.validation", "data.validation.fraction", "#share"},
    {"data.validation", "data.validation.fraction"},
    {"data.validation", "data.validation.path"},
    {"data.shuffle", "data.shuffle=true train.seed"},
    {"train.steps", "", "-1=|auto=|0=", "use train.tokens or train.epochs instead"},
    {"train.seed", "", "-1=|random=", "without it the default seed holds, and runs repeat"},
    {"train.validate_every", "", "epoch=|epochs=", "use a number of steps"},
    {"train.on_bad_loss", "train.on_bad_loss=skip", "ignore=skip|continue=skip|warn=skip"},
    {"train.on_bad_loss", "train.on_bad_loss=stop", "raise=stop|error=stop|abort=stop"},
    {"train.deterministic_mode", "train.deterministic_mode=true", "warn=true|full=true"},
    {"optimizer.beta1", "optimizer.beta1 optimizer.beta2", "#each"},
    {"optimizer.weight_decay", "optimizer.weight_decay=0",
     "none=0|None=0|false=0|False=0|no=0|off=0"},
    {"lr_schedule.warmup_steps", "lr_schedule.warmup_ratio", "#share"},
    {"lr_schedule.warmup_steps", "lr_schedule.warmup_ratio"},
    {"lr_schedule.min_lr", "", "#share", "use the rate itself: min_lr is not a part of max_lr"},
    {"lr_schedule.style", "lr_schedule.style=constant", "none=constant|flat=constant"},
    {"lr_schedule.style", "lr_schedule.style=cosine",
     "cosine_with_min_lr=cosine|cosine_decay=cosine"},
    {"precision.compute", "precision.compute=bf16", "amp=bf16|mixed=bf16|true=bf16"},
    {"precision.compute", "precision.compute=fp16", "16=fp16|mixed_float16=fp16"},
    {"precision.compute", "precision.compute=fp32", "32=fp32|highest=fp32|false=fp32|full=fp32"},
    {"precision.loss_scale", "precision.dynamic_loss_scale=true", "dynamic=true|auto=true"},
    {"parallel.data_parallel", "", "-1=|auto=|0=", "it follows from the number of ranks"},
    {"parallel.sequence_parallel", "parallel.context_parallel"},
    {"parallel.device", "parallel.device=cuda", "0=cuda|1=cuda|cuda:0=cuda|cuda:1=cuda",
     "CUDA_VISIBLE_DEVICES says which"},
    {"parallel.parallel_mode", "parallel.parallel_mode=data_parallel",
     "ddp=data_parallel|dp=data_parallel"},
    {"parallel.parallel_mode", "parallel.parallel_mode=stand_alone", "none=stand_alone"},
    {"parallel.parallel_mode",
     "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level",
     "fsdp=level3|fsdp2=level3|zero=level1|zero1=level1|zero2=level2|zero3=level3"},
    {"parallel.parallel_optimizer", "parallel.parallel_optimizer.enable",
     "true=true|True=true|false=false|False=false|none=false"},
    {"parallel.parallel_optimizer",
     "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level",
     "1=level1|2=level2|3=level3|level1=level1|level2=level2|level3=level3|zero1=level1|"
     "zero2=level2|zero3=level3|full_shard=level3|shard_grad_op=level2"},
    {"parallel.parallel_optimizer.enable",
     "parallel.parallel_optimizer.enable=true parallel.parallel_optimizer.optimizer_level",
     "2=level2|3=level3|level1=level1|level2=level2|level3=level3"},
    {"parallel.parallel_optimizer.optimizer_level", "parallel.parallel_optimizer.optimizer_level",
     "1=level1|2=level2|3=level3|zero1=level1|zero2=level2|zero3=level3|stage1=level1|"
     "stage2=level2|stage3=level3|full_shard=level3|shard_grad_op=level2"},
    {"parallel.pipeline", "parallel.pipeline.scheduler",
     "1f1b=1f1b|gpipe=gpipe|zb-h1=zb-h1|zb-v=zb-v"},
    {"parallel.pipeline", "parallel.pipeline_stages"},
    {"parallel.pipeline.scheduler", "parallel.pipeline.scheduler=1f1b", "interleaved=1f1b"},
    {"parallel.attention_backend", "parallel.attention_backend=auto",
     "flash=auto|fused=auto|sdpa=auto|flash_attention_2=auto|flash_attention_3=auto|flex=auto"},
    {"parallel.attention_backend", "parallel.attention_backend=own",
     "eager=own|unfused=own|math=own|local=own"},
    {"parallel.cp_comm_type", "parallel.cp_comm_type",
     "ulysses=a2a|ring=p2p|allgather=all_gather|all-gather=all_gather|alltoall=a2a|"
     "all_to_all=a2a"},
    {"parallel.cuda_graphs", "parallel.cuda_graphs=true", "full=true|per_layer=true|local=true"},
    {"moe.router_load_balancing_type",
     "moe.router_enable_expert_bias=true moe.router_load_balancing_type",
     "aux_loss_free=none|loss_free=none|noaux_tc=none"},
    {"moe.router_load_balancing_type", "", "gbs_aux_loss=|global_aux_loss=|seq_aux_loss=|sinkhorn=",
     "use aux_loss: this way of balancing is not built"},
    {"recompute.enable", "recompute.enable=true recompute.select",
     "full=full|selective=attention|attention=attention|norms=norms|mlp=mlp|auto=auto"},
    {"offload", "offload.enable", "true=true|True=true|false=false|False=false|cpu=true"},
    {"offload.enable", "offload.enable=true", "cpu=true|host=true"},
    {"log.every", "", "epoch=|epochs=", "use a number of steps"},
    {"output.save_weights", "output.save_weights=true", "safetensors=true|hf=true|last=true"},
    {"output.tensorboard", "output.tensorboard=false", "none=false|None=false"},
    {"output.tensorboard", "output.tensorboard=true", "*", "its files go to output.dir"},
    {"checkpoint", "checkpoint.at_end=false",
     "false=false|none=false|None=false|no=false|off=false"},
    {"checkpoint.every", "",
     "epoch=|epochs=", "use a number of steps, or checkpoint.every_minutes"},
};

/// Whether the row names the value itself.
bool is_exact(const OtherKey& row) {
  return !row.words.empty() && !row.words.starts_with('#') && row.words != "*";
}

}  // namespace

std::span<const OtherKey> own_value_rows() { return rows; }

std::vector<Hint> hints_for_value(const std::string& path, const std::string& value, bool exact) {
  std::vector<Hint> hints;
  for (const OtherKey& row : rows) {
    if (row.key != path || (exact && !is_exact(row))) continue;
    if (auto hint = hint_for_row(row, value)) hints.push_back(std::move(*hint));
  }
  return hints;
}

}  // namespace trainctl
