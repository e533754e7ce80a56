// Keys that people bring from other projects: hints for them.
#include <set>

#include "catch.h"
#include "config/read/read.h"
#include "config/schema/known_paths.h"
#include "config/schema/values.h"
#include "config/upstream/other_keys.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

constexpr Project all[] = {Project("hugging_face"), Project("nanogpt"),  Project("torchtitan"),
                           Project("llmc"),         Project("megatron"), Project("deepspeed"),
                           Project("mindformers"),  Project("trainers"), Project("usual")};

struct Expected {
  const char* text;  // a line of YAML at the top level
  const char* help;  // a part of the suggestion
};

constexpr Expected pasted[] = {
    // Hugging Face
    {"num_hidden_layers: 12", "write model.num_layers: 12 (Hugging Face's num_hidden_layers)"},
    {"intermediate_size: 3072", "write model.ffn_hidden_size: 3072 (Hugging Face's"},
    {"num_key_value_heads: 2", "write model.num_query_groups: 2 "},
    {"head_dim: 64", "write model.kv_channels: 64 "},
    {"rms_norm_eps: 1.0e-6", "write model.norm_epsilon: 1.0e-6 "},
    {"rope_theta: 500000.0", "write model.rotary_base: 500000.0 "},
    {"hidden_act: silu", "write model.family: llama "},
    {"torch_dtype: bfloat16", "write precision.compute: bf16 "},
    {"model_name_or_path: gpt2", "write model.from: gpt2 "},
    {"learning_rate: 5.0e-5", "write lr_schedule.max_lr: 5.0e-5 "},
    {"lr_scheduler_type: constant_with_warmup", "write lr_schedule.style: constant "},
    {"per_device_train_batch_size: 8", "write train.micro_batch_size: 8 "},
    {"max_steps: 500", "write train.steps: 500 "},
    {"num_train_epochs: 3", "write train.epochs: 3 "},
    {"warmup_ratio: 0.03", "did you mean lr_schedule.warmup_ratio?"},
    {"adam_beta2: 0.95", "write optimizer.beta2: 0.95 "},
    {"max_grad_norm: 1.0", "write optimizer.clip_grad_norm: 1.0 "},
    {"optim: adamw_torch_fused", "write optimizer.type: adamw "},
    {"bf16: true", "write precision.compute: bf16 "},
    {"logging_steps: 10", "write log.every: 10 "},
    {"save_steps: 500", "write checkpoint.every: 500 "},
    {"save_total_limit: 3", "write checkpoint.keep: 3 "},
    {"eval_steps: 100", "write train.validate_every: 100 "},
    {"gradient_checkpointing: true", "write recompute.enable: true "},
    {"train_file: a.txt", "write data.train: a.txt "},
    {"eos_token_id: 2", "write data.eod_token: 2 "},
    {"report_to: wandb", "remove it (Hugging Face's report_to): metrics go to metrics.jsonl"},
    {"use_cache: true", "remove it (Hugging Face's use_cache)"},
    {"resid_pdrop: 0.1", "write model.hidden_dropout: 0.1 "},
    {"attn_pdrop: 0.1", "write model.attention_dropout: 0.1 "},
    {"max_seq_length: 512", "write model.seq_length: 512 "},
    {"adam_epsilon: 1.0e-6", "write optimizer.eps: 1.0e-6 "},
    {"validation_split_percentage: 5", "write data.validation.fraction: 0.05 "},
    {"overwrite_output_dir: true", "write output.overwrite: true "},
    {"load_best_model_at_end: true", "write checkpoint.keep_best: true "},
    {"resume_from_checkpoint: out", "remove it (Hugging Face's resume_from_checkpoint): the same"},
    {"use_cpu: true", "write parallel.device: cpu "},
    // nanoGPT
    {"n_layer: 6", "write model.num_layers: 6 (nanoGPT's n_layer)"},
    {"n_head: 6", "write model.num_attention_heads: 6 "},
    {"n_embd: 384", "write model.hidden_size: 384 "},
    {"block_size: 256", "write model.seq_length: 256 (nanoGPT's block_size)"},
    {"dropout: 0.2",
     "write model.hidden_dropout, model.attention_dropout and model.embedding_dropout: 0.2 "},
    {"max_iters: 5000", "write train.steps: 5000 "},
    {"lr_decay_iters: 5000", "write lr_schedule.decay_steps: 5000 "},
    {"warmup_iters: 100", "write lr_schedule.warmup_steps: 100 "},
    {"grad_clip: 1.0", "write optimizer.clip_grad_norm: 1.0 "},
    {"decay_lr: True", "write lr_schedule.style: cosine "},
    {"batch_size: 64", "write train.micro_batch_size: 64 "},
    {"eval_interval: 250", "write train.validate_every: 250 "},
    {"eval_iters: 200", "write data.validation.max_sequences (nanoGPT's eval_iters); eval_iters x"},
    {"out_dir: out", "write output.dir: out "},
    {"dataset: shakespeare_char", "write data.train: data/shakespeare_char/train.bin "},
    {"bias: False", "write model.add_bias_linear: False "},
    {"wandb_log: true", "remove it (nanoGPT's wandb_log)"},
    {"compile: false", "remove it (nanoGPT's compile): the kernels are compiled"},
    {"init_from: gpt2", "write model.from: gpt2 (nanoGPT's init_from); a Hugging Face directory"},
    {"log_interval: 10", "write log.every: 10 "},
    {"eval_only: True", "remove it (nanoGPT's eval_only): trainctl evaluate does that"},
    // Megatron, with hyphens and underscores
    {"num-layers: 12", "write model.num_layers: 12 "},
    {"tensor-model-parallel-size: 8", "write parallel.tensor_parallel: 8 (Megatron's"},
    {"pipeline-model-parallel-size: 4", "write parallel.pipeline_stages: 4 "},
    {"context_parallel_size: 2", "write parallel.context_parallel: 2 "},
    {"swiglu: true", "write model.family: llama (Megatron's swiglu)"},
    {"normalization: RMSNorm", "write model.family: llama "},
    {"position-embedding-type: rope", "write model.family: llama "},
    {"untie-embeddings-and-output-weights: true", "write model.tie_word_embeddings: false "},
    {"disable-bias-linear: true", "write model.add_bias_linear: false "},
    {"train-iters: 1000", "write train.steps: 1000 "},
    {"train_iters: 1000", "write train.steps: 1000 "},
    {"timing-log-level: 1", "write log.timer_level: 1 (Megatron's timing-log-level)"},
    {"train-samples: 1000", "write train.steps (Megatron's train-samples); samples / global"},
    {"lr: 3.0e-4", "write lr_schedule.max_lr: 3.0e-4 "},
    {"lr-decay-style: cosine", "write lr_schedule.style: cosine "},
    {"lr-warmup-iters: 10", "write lr_schedule.warmup_steps: 10 "},
    {"clip-grad: 1.0", "write optimizer.clip_grad_norm: 1.0 "},
    {"adam-eps: 1.0e-8", "write optimizer.eps: 1.0e-8 "},
    {"data-path: my-gpt2_text_document", "write data.train: my-gpt2_text_document "},
    {"split: 949,50,1", "write data.validation.fraction: 0.05 (Megatron's split)"},
    {"save-interval: 1000", "write checkpoint.every: 1000 "},
    {"micro-batch-size: 4", "write train.micro_batch_size: 4 "},
    {"use-flash-attn: true", "remove it (Megatron's use-flash-attn)"},
    {"distributed-timeout-minutes: 10", "write parallel.deadline_seconds: 600 "},
    {"num-query-groups: 8", "write model.num_query_groups: 8 "},
    {"seq-length: 1024", "write model.seq_length: 1024 (Megatron's seq-length)"},
    {"use-distributed-optimizer: true", "write parallel.parallel_optimizer.enable: true "},
    {"overlap-grad-reduce: true", "write hooks.grad_sync: overlap "},
    {"lr-warmup-fraction: 0.01", "write lr_schedule.warmup_steps (Megatron's lr-warmup-fraction)"},
    {"tensorboard-dir: tb", "write output.tensorboard: true (Megatron's tensorboard-dir)"},
    {"no-gradient-accumulation-fusion: true",
     "write parallel.gradient_accumulation_fusion: false "},
    {"decoder-first-pipeline-num-layers: 3", "write parallel.pipeline.first_stage_layers: 3 "},
    {"data-cache-path: c", "write data.cache_dir: c "},
    // torchtitan
    {"training: {steps: 10, seq_len: 2048}",
     "write train.steps: 10 (torchtitan's training.steps); write model.seq_length: 2048 "},
    {"parallelism: {tensor_parallel_degree: 8}", "write parallel.tensor_parallel: 8 "},
    {"lr_scheduler: {warmup_steps: 2}", "did you mean lr_schedule?"},
    {"activation_checkpoint: {mode: full}", "write recompute.enable: true "},
    {"seq_len: 2048", "write model.seq_length: 2048 (torchtitan's training.seq_len)"},
    {"local_batch_size: 8", "write train.micro_batch_size: 8 "},
    {"flavor: 8B", "write model.preset: llama3-8b "},
    {"dump_folder: out", "write output.dir: out "},
    {"mixed_precision_param: bfloat16", "write precision.compute: bf16 "},
    {"metrics: {log_freq: 10}", "write log.every: 10 "},
    {"metrics: {enable_tensorboard: true}", "write output.tensorboard: true "},
    {"comm: {train_timeout_seconds: 100}", "write parallel.deadline_seconds: 100 "},
    {"job: {dump_folder: out}", "write output.dir: out "},
    {"profiling: {enable_profiling: true}",
     "remove it (torchtitan's profiling.enable_profiling): log.trace writes a timeline"},
    // llm.c
    {"max_seq_len: 1024", "write model.seq_length: 1024 (llm.c's max_seq_len)"},
    {"channels: 768", "write model.hidden_size: 768 "},
    {"num_heads: 12", "write model.num_attention_heads: 12 "},
    {"val_loss_every: 250", "write train.validate_every: 250 "},
    {"\"-l\": 0.0006", "write lr_schedule.max_lr: 0.0006 (llm.c's -l)"},
    {"\"-u\": 700", "write lr_schedule.warmup_steps: 700 (llm.c's -u)"},
    {"\"-e\": d12", "write model.preset: gpt2-124m (llm.c's -e)"},
};

}  // namespace

TEST_CASE("a key of another project gets a hint with our key") {
  static_assert(std::size(pasted) >= 100);
  for (const Expected& row : pasted) {
    CAPTURE(row.text);
    const ReadResult result = read(good_text + row.text + "\n");
    const Diagnostic found = only(result);
    CHECK(found.code == "unknown-key");
    CAPTURE(found.help);
    CHECK(found.help.find(row.help) != std::string::npos);
  }
}

TEST_CASE("hints also come inside sections and on the command line") {
  const auto help = [](const std::string& text, const std::vector<std::string>& set) {
    return only(read(text, set)).help;
  };
  CHECK(help(good_text + "optimizer: {lr: 1.0e-3}\n", {}) ==
        "write lr_schedule.max_lr: 1.0e-3 (torchtitan's optimizer.lr)");
  CHECK(help(good_text, {"train.max_iters=7"}) == "write train.steps: 7 (nanoGPT's max_iters)");
  CHECK(help(good_text + "checkpoint: {folder: x}\n", {}).starts_with("remove it (torchtitan's"));
  // Ours, in the wrong place or misspelt: as before.
  CHECK(help(good_text, {"optimizer.max_lr=1.0"}) == "did you mean lr_schedule.max_lr?");
  CHECK(help(good_text, {"optimizer.wieght_decay=1.0"}) == "did you mean weight_decay?");
}

TEST_CASE("rows of other projects' keys are sound") {
  std::size_t rows = 0;
  for (const Project project : all) {
    std::set<std::string> keys;
    for (const OtherKey& row : other_keys(project)) {
      CAPTURE(row.key);
      ++rows;
      CHECK(keys.insert(std::string(row.key)).second);
      CHECK((row.paths.empty() ? !row.note.empty() : true));
      for (const std::string& path : paths_of(row)) {
        CAPTURE(path);
        CHECK(find_known_path(path) != nullptr);
      }
      CHECK(find_other_key(project, row.key) == &row);
    }
  }
  CHECK(rows > 250);
}

TEST_CASE("rows of values that keys of ours do not take are sound") {
  for (const OtherKey& row : local_value_rows()) {
    CAPTURE(row.key, row.words);
    CHECK(find_known_path(std::string(row.key)) != nullptr);
    CHECK((row.paths.empty() ? !row.note.empty() : true));
    if (row.words.empty() || row.words.starts_with('#') || row.words == "*") continue;
    for (const std::string& pair : split_words(row.words)) {
      const std::string word = pair.substr(0, pair.find('='));
      CAPTURE(word);
      // Exactly one row has the word, and the reader refuses it.
      const auto hints = hints_for_value(std::string(row.key), word, true);
      REQUIRE(hints.size() == 1);
      CHECK(read(good_text, {std::string(row.key) + "=" + word}).diagnostics.has_errors());
      for (const HintValue& value : hints.front().values) {
        Config config;
        CAPTURE(value.path, value.text);
        CHECK_FALSE(set_value(config, value.path, value.text));
      }
    }
  }
}

TEST_CASE("values of other projects are converted") {
  const auto converted = [](Project project, const char* key, const char* value) {
    return convert(*find_other_key(project, key), value).value_or("none");
  };
  CHECK(converted("megatron", "split", "969, 30, 1") == "0.03");
  CHECK(converted("megatron", "split", "100,0,0") == "0");
  CHECK(converted("megatron", "split", "a,b") == "none");
  CHECK(converted("megatron", "normalization", "LayerNorm") == "gpt2");
  CHECK(converted("megatron", "normalization", "Other") == "none");
  CHECK(converted("hugging_face", "max_steps", "-1").empty());
  CHECK(converted("hugging_face", "max_steps", "12") == "12");
  CHECK(converted("torchtitan", "training.mixed_precision_param", "float32") == "fp32");
}

}  // namespace trainctl::test
