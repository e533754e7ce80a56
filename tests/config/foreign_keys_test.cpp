// Keys of other programs in a file of ours: none is ignored.
#include "catch.h"
#include "config/migrate/migrate.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

struct Foreign {
  const char* line;
  const char* help;  // a part of it
};

}  // namespace

TEST_CASE("a key of MindFormers' runner outside such a file is an error with what to write") {
  const Foreign lines[] = {
      {"optimizer: {betas: [0.9, 0.95]}", "write optimizer.beta1: 0.9 and optimizer.beta2: 0.95"},
      {"load_checkpoint: ./x", "write model.from: ./x"},
      {"resume_training: true", "the same command resumes"},
      {"seed: 7", "did you mean train.seed?"},
      {"output_dir: x", "write output.dir: x"},
      {"eval_step_interval: 5", "write train.validate_every: 5"},
      {"callbacks: [{type: A}]", "remove it"},
      {"context: {mode: 0}", "remove it"},
      {"micro_batch_interleave_num: 2", "write train.micro_batch_num: 2"},
      {"layer_scale: true", "remove it"},
      {"lr_scale: true", "lr_schedule.max_lr"},
      {"swap_config: {swap: true}", "offload.enable"},
  };
  for (const Foreign& one : lines) {
    CAPTURE(one.line);
    const Diagnostic found = only(read(good_text + one.line + "\n"));
    CHECK(found.severity == Severity::error);
    CHECK(found.code == "unknown-key");
    CAPTURE(found.help);
    CHECK(contains(found.help, one.help));
    CHECK_FALSE(migrate_config(good_text + one.line + "\n", "t.yaml").ok);
  }
  const Diagnostic schedule = only(
      read(good_model + good_data + good_train + "lr_schedule: {type: cosine, max_lr: 1.0e-3}\n"));
  CHECK(schedule.help == "write lr_schedule.style: cosine (MindFormers' lr_schedule.type)");
  for (const char* line :
       {"load_checkpoint: ''", "resume_training: False", "do_eval: false", "layer_scale: False",
        "only_save_strategy: false", "lr_scale: false", "micro_batch_interleave_num: 1"}) {
    CAPTURE(line);
    CHECK(found(read(good_text + line + "\n")).empty());
  }
}

TEST_CASE("usual words of other programs get the line to write") {
  const Foreign lines[] = {
      {"parallel: {tp: 2}", "write parallel.tensor_parallel: 2"},
      {"parallel: {pp: 2}", "write parallel.pipeline_stages: 2"},
      {"parallel: {dp: 2}", "write parallel.data_parallel: 2"},
      {"parallel: {cp: 2}", "write parallel.context_parallel: 2"},
      {"parallel: {ep: 2}", "write parallel.expert_parallel: 2"},
      {"parallel: {pipeline_parallel: 2}", "write parallel.pipeline_stages: 2"},
      {"parallel: {zero_stage: 3}",
       "write parallel.parallel_optimizer.enable: true and "
       "parallel.parallel_optimizer.optimizer_level: level3"},
      {"zero: 1", "parallel.parallel_optimizer.optimizer_level: level1"},
      {"parallel: {zero_stage: 0}", "it asks for nothing"},
      {"parallel: {fsdp: true}", "write parallel.parallel_optimizer.enable: true"},
      {"moe: {top_k: 2}", "write moe.router_topk: 2"},
      {"moe: {num_experts_per_tok: 2}", "write moe.router_topk: 2"},
      {"checkpoint: {save_every: 100}", "write checkpoint.every: 100"},
      {"eval_every: 10", "write train.validate_every: 10"},
      {"output: {path: runs/a}", "write output.dir: runs/a"},
      {"recompute: {granularity: full}", "write recompute.select: full"},
      {"mixed_precision: bf16", "write precision.compute: bf16"},
      {"wandb: {project: foo}", "metrics go to metrics.jsonl"},
      {"lora_r: 8", "all weights are trained"},
      {"load_in_4bit: true", "remove it"},
      {"zero_optimization: {stage: 2}", "optimizer_level: level2"},
      {"train_micro_batch_size_per_gpu: 2", "write train.micro_batch_size: 2"},
      {"gradient_clipping: 1.0", "write optimizer.clip_grad_norm: 1.0"},
      {"base_model: models/a", "write model.from: models/a"},
      {"sequence_len: 64", "write model.seq_length: 64"},
      {"cutoff_len: 64", "write model.seq_length: 64"},
      {"val_set_size: 0.05", "write data.validation.fraction: 0.05"},
      {"num_epochs: 2", "write train.epochs: 2"},
      {"accelerator: gpu", "write parallel.device: cuda"},
      {"device_batch_size: 4", "write train.micro_batch_size: 4"},
      {"num_iterations: 5", "write train.steps: 5"},
      {"optimizer: {name: AdamW}", "write optimizer.type: adamw"},
      {"accumulate_grad_batches: 4", "write train.micro_batch_num: 4"},
      {"lr_scheduler: {warmup_steps: 2}", "did you mean lr_schedule?"},
  };
  for (const Foreign& one : lines) {
    CAPTURE(one.line);
    const Diagnostic found = only(read(good_text + one.line + "\n"));
    CHECK(found.code == "unknown-key");
    CAPTURE(found.help);
    CHECK(contains(found.help, one.help));
  }
  const auto help = [](const std::string& text) { return only(read(text)).help; };
  CHECK(contains(help("model: {num_layers: 2, dim: 64, num_attention_heads: 4, seq_length: 32, "
                      "vocab_size: 256}\n" +
                      good_data + good_train + good_lr),
                 "write model.hidden_size: 64"));
  CHECK(contains(help(good_model + good_train + good_lr + "data: {path: a.txt}\n"),
                 "write data.train: a.txt"));
  CHECK(contains(help(good_model + good_train + good_data +
                      "lr_scheduler: {max_lr: 1.0e-3, warmup_steps: 2}\n"),
                 "did you mean lr_schedule?"));
}

TEST_CASE("a word means what it means in its section") {
  const Foreign lines[] = {
      {"dtype: bfloat16", "write precision.compute: bf16"},
      {"checkpoint: {path: x}", "write output.dir: x"},
      {"checkpoint: {enabled: true}", "see checkpoint.every"},
      {"log: {steps: 10}", "write log.every: 10"},
      {"output: {name: x}", "write output.dir: x"},
      {"parallel: {schedule: 1f1b}", "write parallel.pipeline.scheduler: 1f1b"},
      {"eval: {interval: 1000}", "write train.validate_every: 1000"},
      {"flops_profiler: {enabled: true}", "use trainctl bench step"},
      {"curriculum_learning: {enabled: true}", "write train.rampup_batch_size"},
      {"optimizer: {ep: 1.0e-8}", "did you mean eps?"},
      {"aio: {block_size: 1}", "see the section offload"},
      {"stage: sft", "trainctl trains on texts"},
      {"trainer: {max_steps: 100, devices: 8}", "write train.steps: 100"},
      {"lr_scheduler: {warmup_steps: 2, min_lr_factor: 0.1}", "write lr_schedule.warmup_steps: 2"},
      {"scheduler: {type: WarmupLR}", "write lr_schedule.style: constant"},
      {"hidden_size_per_head: 16", "write model.kv_channels: 16"},
      {"no_cuda: true", "write parallel.device: cpu"},
      {"label_smoothing_factor: 0.1", "the loss is the cross-entropy"},
  };
  for (const Foreign& one : lines) {
    CAPTURE(one.line);
    const Diagnostic found = only(read(good_text + one.line + "\n"));
    CAPTURE(found.help);
    CHECK(found.code == "unknown-key");
    CHECK(contains(found.help, one.help));
    CHECK_FALSE(contains(found.help, "bf16.enabled"));
  }
}

TEST_CASE("a key that nobody has gets a way to the keys there are") {
  CHECK(only(read(good_text + "output: {zzzqqq: 1}\n")).help ==
        "remove it: `trainctl explain output` lists the keys");
  CHECK(contains(only(read(good_text + "zzzqqq: 1\n")).help, "trainctl schema"));
}

TEST_CASE("a section with a value instead of keys") {
  const Foreign lines[] = {
      {"optimizer: AdamW", "write optimizer.type: adamw"},
      {"checkpoint: 100", "write checkpoint.every: 100"},
      {"moe: 8", "write moe.num_experts: 8"},
      {"log: debug", "write log.level: debug"},
      {"parallel: 8", "give it keys: `trainctl explain parallel` lists them"},
      {"optimizer: [1]", "give it keys: `trainctl explain optimizer` lists them"},
  };
  for (const Foreign& one : lines) {
    CAPTURE(one.line);
    const Diagnostic found = only(read(good_text + one.line + "\n"));
    CHECK(found.code == "wrong-type");
    CHECK(contains(found.help, one.help));
  }
}

TEST_CASE("a key is suggested only if it takes the value") {
  // pipeline is a section, num_experts is near but means something else.
  CHECK_FALSE(contains(only(read(good_text + "parallel: {pipelines: 2}\n")).help, "pipeline?"));
  CHECK(contains(only(read(good_text + "parallel: {pipelin: {interleave: false}}\n")).help,
                 "did you mean pipeline?"));
  CHECK_FALSE(contains(only(read(good_text + "train: {stepz: many}\n", {})).help, "steps?"));
}

TEST_CASE("words of other programs") {
  const auto help = [](const std::string& set) { return only(read(good_text, {set})).help; };
  CHECK(help("parallel.device=gpu") == "did you mean cuda?");
  CHECK(help("optimizer.type=adam") == "did you mean adamw?");
  CHECK(help("model.family=mistral") == "did you mean llama?");
  CHECK(help("precision.compute=bf16-mixed") == "did you mean bf16?");
  CHECK(help("lr_schedule.style=cosine_with_warmup") == "did you mean cosine?");
  CHECK(help("parallel.parallel_mode=4").empty());
}

TEST_CASE("a value that a key does not take gets the line that says it") {
  const Foreign lines[] = {
      {"parallel.device=tpu", "write cpu; tpu is not built"},
      {"parallel.device=mps", "write cpu; mps is not built"},
      {"parallel.device=cuda:1", "write parallel.device: cuda; CUDA_VISIBLE_DEVICES says which"},
      {"precision.compute=fp64", "write fp32; fp64 is not built"},
      {"precision.compute=float64", "write fp32; float64 is not built"},
      {"precision.compute=tf32", "write fp32; tf32 is not built"},
      {"precision.loss_scale=dynamic", "write precision.dynamic_loss_scale: true"},
      {"optimizer.type=[adamw]", "write adamw"},
      {"optimizer.beta1=[0.9, 0.95]", "write optimizer.beta1: 0.9 and optimizer.beta2: 0.95"},
      {"recompute.enable=full", "write recompute.enable: true and recompute.select: full"},
      {"data.validation=0.1", "write data.validation.fraction: 0.1"},
      {"data.validation=5%", "write data.validation.fraction: 0.05"},
      {"data.validation=val.txt", "write data.validation.path: val.txt"},
      {"data.validation=none", "write data.validation.fraction: 0"},
      {"data.shuffle=42", "write data.shuffle: true and train.seed: 42"},
      {"data.tokenizer=m/tokenizer.json", "write data.tokenizer: hf:m/"},
      {"data.tokenizer=a.model", "write data.tokenizer: sentencepiece:a.model"},
      {"data.tokenizer=gpt2",
       "use hf:FOLDER, where FOLDER holds a tokenizer.json, or "
       "sentencepiece:FILE"},
      {"data.tokenizer=bytes", "did you mean byte?"},
      {"train.steps=-1", "use train.tokens or train.epochs instead"},
      {"train.on_bad_loss=ignore", "write train.on_bad_loss: skip"},
      {"lr_schedule.warmup_steps=0.03", "write lr_schedule.warmup_ratio: 0.03"},
      {"lr_schedule.warmup_steps=3%", "write lr_schedule.warmup_ratio: 0.03"},
      {"lr_schedule.min_lr=10%", "use the rate itself: min_lr is not a part of max_lr"},
      {"parallel.data_parallel=-1", "remove it: it follows from the number of ranks"},
      {"parallel.sequence_parallel=2", "write parallel.context_parallel: 2"},
      {"parallel.parallel_mode=ddp", "write parallel.parallel_mode: data_parallel"},
      {"parallel.parallel_optimizer=3",
       "write parallel.parallel_optimizer.enable: true and "
       "parallel.parallel_optimizer.optimizer_level: level3"},
      {"parallel.parallel_optimizer.optimizer_level=2",
       "write parallel.parallel_optimizer.optimizer_level: level2"},
      {"parallel.pipeline=4", "write parallel.pipeline_stages: 4"},
      {"parallel.pipeline=gpipe", "write parallel.pipeline.scheduler: gpipe"},
      {"parallel.attention_backend=flash", "write parallel.attention_backend: auto"},
      {"parallel.cp_comm_type=ulysses", "write parallel.cp_comm_type: a2a"},
      {"model.family=qwen2", "write model.family: llama and model.add_qkv_bias: true"},
      {"model.family=gemma2", "use gpt2 or llama: this family is not built"},
      {"moe.router_load_balancing_type=aux_loss_free",
       "write moe.router_enable_expert_bias: true and moe.router_load_balancing_type: none"},
      {"output.tensorboard=runs/tb", "write output.tensorboard: true; its files go to output.dir"},
      {"output.tensorboard=yes", "write true"},
      {"checkpoint=false", "write checkpoint.at_end: false"},
  };
  for (const Foreign& one : lines) {
    CAPTURE(one.line);
    CHECK(only(read(good_text, {one.line})).help == one.help);
  }
}

TEST_CASE("sections of one word, and units") {
  CHECK(read(good_text + "precision: bf16\n").config.precision.compute == ComputeType::bf16);
  const RecomputeConfig full = read(good_text + "recompute: full\n").config.recompute;
  CHECK(full.enable);
  CHECK(full.select == "full");
  CHECK(read(good_text + "recompute: norms\n").config.recompute.select == "norms");
  CHECK(read(good_text + "recompute: selective\n").config.recompute.select == "attention");
  CHECK_FALSE(read(good_text + "recompute: none\n").config.recompute.enable);
  CHECK(read(good_text + "output: runs/x\n").config.output.dir == "runs/x");
  CHECK(read(good_text, {"output=runs/y"}).config.output.dir == "runs/y");
  CHECK(read(good_text, {"precision=fp16"}).config.precision.compute == ComputeType::fp16);
  CHECK(read(good_text, {"train.steps=10k"}).config.train.steps == 10'000);
  CHECK(read(good_text, {"train.steps=1.5k"}).config.train.steps == 1500);
  CHECK(read(good_text, {"train.tokens=2B"}).config.train.tokens == 2'000'000'000);
  CHECK(read(good_text, {"train.tokens=3M"}).config.train.tokens == 3'000'000);
  const auto limit = [](const std::string& text) {
    return read(good_text + "recompute: {select: auto, memory_limit: " + text + "}\n")
        .config.recompute.memory_limit;
  };
  CHECK(limit("80GiB") == 80);
  CHECK(limit("512MiB") == 0.5);
  CHECK(limit("80 GB") == 80e9 / 0x1p30);
  const auto help = [](const std::string& set) { return only(read(good_text, {set})).help; };
  CHECK(help("checkpoint.every=10m") ==
        "write every_minutes: 10 for minutes, or every: 10M for millions");
  CHECK(help("train.steps=10m") == "write steps: 10M for millions");
  CHECK(help("model.seq_length=4k") == "write 4000 or 4096");
  CHECK(help("checkpoint.every_minutes=0.5h") == "write 30");
  CHECK(help("parallel.deadline_seconds=2m") == "write 120");
  CHECK(help("optimizer.weight_decay=10%") == "write 0.1");
}

TEST_CASE("layers' ways to share attention as quoted text, and a list of one") {
  for (const char* text : {"[a2a*1, p2p*1]", "[\"a2a*1\", \"p2p*1\"]", "\"a2a*1, p2p*1\""}) {
    CAPTURE(text);
    const ReadResult result = read(good_text + "parallel: {cp_comm_type: " + text + "}\n");
    CHECK(found(result).empty());
    CHECK(result.config.parallel.cp_comm_type.layers.size() == 2);
  }
  CHECK(read(good_text + "parallel: {pipeline: {offset: 0}}\n").config.parallel.pipeline.offset ==
        IntList{0});
}

TEST_CASE("unknown keys in MindFormers' sections are refused whatever their value") {
  for (const char* line :
       {"parallel_config: {expert_nums: {}}", "moe_config: {router_group_topks: {}}",
        "recompute_config: {a: 1}", "parallel_config: {a: null}"}) {
    CAPTURE(line);
    CHECK(only(read(good_text + line + "\n")).code == "unknown-key");
  }
}

}  // namespace trainctl::test
