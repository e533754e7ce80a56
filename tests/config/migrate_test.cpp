// Rewriting files into canonical form.
#include <algorithm>

#include "catch.h"
#include "config/migrate/migrate.h"
#include "config/migrate/write_yaml.h"
#include "config_text.h"

namespace trainctl::test {
namespace {

Migrated migrate(const std::string& text) { return migrate_config(text, "t.yaml"); }

std::vector<std::string> listed(const Migrated& migrated) {
  std::vector<std::string> list;
  for (const Diagnostic& diagnostic : migrated.diagnostics.list()) {
    list.push_back(diagnostic.code + " " + diagnostic.path + " " +
                   std::to_string(diagnostic.place.line));
  }
  return list;
}

/// Checks that the Config is equal before and after migration, and after a second migration.
void check_equal(const std::string& text) {
  CAPTURE(text);
  const ReadResult before = read(text);
  REQUIRE_FALSE(before.diagnostics.has_errors());
  const Migrated once = migrate(text);
  REQUIRE(once.ok);
  CAPTURE(once.text);
  const ReadResult after = read(once.text);
  CHECK_FALSE(after.diagnostics.has_errors());
  CHECK(after.config == before.config);
  CHECK(migrate(once.text).text == once.text);
}

const std::string block =
    "model:\n"
    "  num_layers: 2\n"
    "  hidden_size: 64\n"
    "  num_attention_heads: 4\n"
    "  seq_length: 32\n"
    "  vocab_size: 256\n"
    "\n"
    "data:\n"
    "  train: a.txt\n"
    "\n"
    "train:\n"
    "  steps: 10\n"
    "  global_batch_size: 4\n"
    "\n"
    "lr_schedule:\n"
    "  max_lr: 1.0e-3\n";

}  // namespace

TEST_CASE("sections and keys come in the schema's order, in block style") {
  const Migrated migrated = migrate("lr_schedule: {max_lr: 1.0e-3}\n" + good_train + good_data +
                                    "model: {vocab_size: 256, num_layers: 2, hidden_size: 64, "
                                    "num_attention_heads: 4, seq_length: 32}\n");
  CHECK(migrated.ok);
  CHECK(migrated.text == block);
  CHECK(listed(migrated).empty());
}

TEST_CASE("upstream spellings become ours, integers of parallel_mode words") {
  const Migrated migrated = migrate(block +
                                    "parallel_config:\n"
                                    "  model_parallel: 2\n"
                                    "  pipeline_stage: 2\n"
                                    "parallel:\n"
                                    "  parallel_mode: hybrid_parallel\n"
                                    "recompute_config:\n"
                                    "  recompute: [1, 1]\n");
  REQUIRE(migrated.ok);
  CHECK(contains(migrated.text,
                 "parallel:\n"
                 "  parallel_mode: hybrid_parallel\n"
                 "  tensor_parallel: 2\n"
                 "  pipeline_stages: 2\n"));
  CHECK(contains(migrated.text, "recompute:\n  enable: true\n  layers_per_stage: [1, 1]\n"));
  CHECK_FALSE(contains(migrated.text, "parallel_config"));
}

TEST_CASE("the migrated file reads to the same configuration") {
  check_equal(good_text);
  check_equal(block);
  check_equal(block + "parallel_config: {model_parallel: 2, micro_batch_num: 2}\n");
  check_equal(block + "parallel: {tensor_model_parallel_size: 2, sequence_parallel: true}\n");
  check_equal(block + "moe_config: {expert_num: 4, num_experts_chosen: 2}\n");
  check_equal(block + "log: {every: ${TRAINCTL_UNSET:-3}, level: \"info\"}\n");
  check_equal(block + "output: {dir: \"a \\\"b\\\" \\\\ ${TRAINCTL_UNSET:-x}\"}\n");
  check_equal(block + "output: {dir: 'it''s ${literal} $$'}\n");
  check_equal(block + "output: &o\n  dir: |-\n    runs # no comment\nlog: {every: 5}\n");
  check_equal(good_model + good_train + good_lr +
              "data: {train: [{path: \"yes\", weight: 2}, 'a,b', c d]}\n");
  check_equal(block + "log: {<<: {every: 3}, level: debug}\nprecision: {compute: bf16}\n");
}

TEST_CASE("comments move with their keys, the header stays on top") {
  const Migrated migrated = migrate(
      "# My run.\n"
      "# Second line.\n"
      "\n"
      "# about the rate\n"
      "lr_schedule:  # behind the section\n"
      "  # the highest\n"
      "  max_lr: 1.0e-3  # behind the rate\n"
      "# upstream's section\n"
      "parallel_config:\n"
      "  # two of them\n"
      "  model_parallel: 2 # behind\n" +
      good_model + good_data + good_train + "# the end\n");
  REQUIRE(migrated.ok);
  CHECK(migrated.text.starts_with("# My run.\n# Second line.\n\nmodel:\n"));
  CHECK(contains(migrated.text,
                 "# about the rate\n"
                 "lr_schedule:  # behind the section\n"
                 "  # the highest\n"
                 "  max_lr: 1.0e-3  # behind the rate\n"));
  CAPTURE(migrated.text);
  CHECK(contains(migrated.text,
                 "parallel:\n"
                 "  # upstream's section\n"
                 "  # two of them\n"
                 "  tensor_parallel: 2  # behind\n"));
  CHECK(migrated.text.ends_with("\n\n# the end\n"));
}

TEST_CASE("a # in quotes, blocks and words does not start a comment") {
  const std::string text =
      "a: \"x # y\" # one\n"
      "b: 'it''s # z' # two\n"
      "c: it's#4 # three\n"
      "d: |\n"
      "  # no comment\n"
      "\n"
      "  none\n"
      "e: [1, # four\n"
      "    2] # five\n"
      "f: \"two\n"
      "  # lines\" # six\n";
  const Comments comments = collect_comments(text, {1, 2, 3, 4, 8, 10});
  CHECK(comments.behind ==
        std::map<int, std::string>{{1, "# one"}, {2, "# two"}, {3, "# three"}, {8, "# four"}});
  CHECK(comments.above ==
        std::map<int, std::vector<std::string>>{{8, {"# five"}}, {10, {"# six"}}});
  CHECK(comments.header.empty());
  CHECK(comments.footer.empty());
}

TEST_CASE("includes, overrides and variables stay") {
  const Migrated migrated = migrate(
      "train: {steps: !override ${STEPS:-10}}\n"
      "include: [a.yaml, b.yaml]\n"
      "log: !override {every: 5}\n"
      "output: {dir: \"${HOME}/x\"}\n");
  REQUIRE(migrated.ok);
  CHECK(migrated.text ==
        "include: [a.yaml, b.yaml]\n"
        "\ntrain:\n  steps: !override ${STEPS:-10}\n"
        "\nlog: !override\n  every: 5\n"
        "\noutput:\n  dir: \"${HOME}/x\"\n");
  CHECK(listed(migrated).empty());
}

TEST_CASE("anchors and merge keys are resolved") {
  const Migrated migrated = migrate(good_model + good_data + good_lr +
                                    "train: {steps: &n 10, global_batch_size: *n}\n"
                                    "log: {<<: [{every: 3}, {level: debug}], color: false}\n");
  CHECK(contains(migrated.text, "  steps: 10\n  global_batch_size: 10\n"));
  CHECK(contains(migrated.text, "log:\n  level: debug\n  every: 3\n  color: false\n"));
}

TEST_CASE("what the schema does not have is refused with its line and help") {
  const Migrated migrated = migrate(block + "log:\n  evry: 5\nwandb: {project: x}\n");
  CHECK_FALSE(migrated.ok);
  CHECK(listed(migrated) ==
        std::vector<std::string>{"unknown-key log.evry 18", "unknown-key wandb 19"});
  CHECK(migrated.diagnostics.list()[0].help == "did you mean every?");
}

TEST_CASE("required keys that nothing gives are named") {
  const Migrated migrated = migrate("train: {steps: 5}\n" + good_model + good_data);
  REQUIRE(migrated.ok);
  CHECK(listed(migrated) == std::vector<std::string>{"missing-key lr_schedule.max_lr 0",
                                                     "missing-key train.global_batch_size 0"});
  CHECK(migrated.diagnostics.list()[0].message == "required, and nothing in the file gives it");
}

TEST_CASE("invalid YAML and contradictory files are not migrated") {
  for (const char* text : {"a: \"b\n", "- a\n", "", "a: 1\na: 2\n", "log: !x 1\n"}) {
    CAPTURE(text);
    const Migrated migrated = migrate(text);
    CHECK_FALSE(migrated.ok);
    CHECK(migrated.text.empty());
    CHECK(migrated.diagnostics.has_errors());
  }
  const Migrated twice =
      migrate(block + "parallel: {tensor_parallel: 4}\nparallel_config: {model_parallel: 2}\n");
  CHECK_FALSE(twice.ok);
  CHECK(twice.diagnostics.list().front().code == "two-spellings");
}

TEST_CASE("a MindFormers file comes over, and the rest is listed") {
  const Migrated migrated = migrate(
      "# Llama, fine-tuned\n"
      "seed: 7\n"
      "output_dir: './output'\n"
      "run_mode: 'finetune'\n"
      "use_parallel: True\n"
      "runner_config:\n"
      "  epochs: 2\n"
      "  batch_size: 2  # of one rank\n"
      "  sink_mode: True\n"
      "optimizer:\n"
      "  type: AdamW\n"
      "  betas: [0.9, 0.95]\n"
      "  eps: 1.e-8\n"
      "  weight_decay: 0.1\n"
      "  learning_rate: 1.e-5\n"
      "lr_schedule:\n"
      "  type: CosineWithWarmUpLR\n"
      "  learning_rate: 2.e-5\n"
      "  lr_end: 1.e-6\n"
      "  warmup_steps: 10\n"
      "  total_steps: -1\n"
      "runner_wrapper:\n"
      "  type: MFTrainOneStepCell\n"
      "  use_clip_grad: True\n"
      "  max_grad_norm: 0.5\n"
      "train_dataset: &train_dataset\n"
      "  data_loader:\n"
      "    type: MindDataset\n"
      "    dataset_dir: \"data/x.mindrecord\"\n"
      "    shuffle: True\n"
      "train_dataset_task:\n"
      "  dataset_config: *train_dataset\n"
      "parallel_config:\n"
      "  data_parallel: &dp 2\n"
      "  model_parallel: 2\n"
      "  pipeline_stage: 2\n"
      "  micro_batch_num: 4\n"
      "model:\n"
      "  model_config:\n"
      "    type: LlamaConfig\n"
      "    num_layers: 4\n"
      "    hidden_size: 64\n"
      "    num_heads: 4\n"
      "    n_kv_heads: 2\n"
      "    vocab_size: 256\n"
      "    seq_length: 32\n"
      "    intermediate_size: 128\n"
      "    compute_dtype: \"bfloat16\"\n"
      "    use_flash_attention: True\n"
      "  arch:\n"
      "    type: LlamaForCausalLM\n"
      "callbacks:\n"
      "  - type: MFLossMonitor\n");
  CAPTURE(migrated.text, render_text(migrated.diagnostics, false));
  REQUIRE(migrated.ok);
  CHECK(migrated.text.starts_with("# Llama, fine-tuned\n\nmodel:\n  family: llama\n"));
  CHECK(contains(migrated.text, "  micro_batch_size: 2  # of one rank\n"));
  const auto warned = listed(migrated);
  const auto warns = [&](const std::string& wanted) {
    return std::find(warned.begin(), warned.end(), wanted) != warned.end();
  };
  CHECK_FALSE(warns("not-carried run_mode 4"));
  CHECK_FALSE(warns("not-carried runner_config.epochs 7"));
  CHECK(warns("not-carried runner_config.sink_mode 9"));
  CHECK(warns("not-carried optimizer.learning_rate 15"));
  CHECK(warns("not-carried runner_wrapper.type 23"));
  CHECK(warns("not-carried train_dataset.data_loader.type 28"));
  CHECK(warns("not-carried model.model_config.use_flash_attention 49"));
  CHECK(warns("not-carried model.arch 50"));
  CHECK(warns("not-carried callbacks 52"));
  CHECK_FALSE(warns("missing-key train.steps 0"));
  const ReadResult result = read(migrated.text);
  CHECK(result.config.train.epochs == 2);
  CHECK(result.config.train.steps == 0);  // the data says how many
  CHECK(found(result).empty());
  const Config& config = result.config;
  CHECK(config.train.seed == 7);
  CHECK(config.output.dir == "./output");
  CHECK(config.train.micro_batch_size == 2);
  CHECK(config.train.micro_batch_num == 4);
  CHECK(config.train.global_batch_size == 16);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.optimizer.eps == 1e-8);
  CHECK(config.optimizer.clip_grad_norm == 0.5);
  CHECK(config.lr_schedule.style == LrStyle::cosine);
  CHECK(config.lr_schedule.max_lr == 2e-5);
  CHECK(config.lr_schedule.min_lr == 1e-6);
  CHECK_FALSE(config.lr_schedule.decay_steps);
  CHECK(config.data.train == std::vector<DataSource>{{"data/x.mindrecord", 1.0}});
  CHECK(config.data.shuffle);
  CHECK(config.model.num_query_groups == 2);
  CHECK(config.model.ffn_hidden_size == 128);
  CHECK(config.precision.compute == ComputeType::bf16);
  CHECK(config.parallel.tensor_parallel == 2);
  CHECK(config.parallel.data_parallel == 2);
}

TEST_CASE("MindFormers values without a counterpart are named") {
  const Migrated migrated = migrate(block +
                                    "use_parallel: False\n"
                                    "optimizer: {type: Came}\n"
                                    "runner_wrapper: {use_clip_grad: False, max_grad_norm: 2}\n"
                                    "context: {device_target: Ascend, mode: 0}\n");
  REQUIRE(migrated.ok);
  CHECK(contains(migrated.text, "  type: Came\n"));
  CHECK(contains(migrated.text, "  clip_grad_norm: 0.0\n"));
  CHECK(contains(migrated.text, "  parallel_mode: stand_alone\n"));
  CHECK(listed(migrated) == std::vector<std::string>{"not-carried context 20"});
}

}  // namespace trainctl::test
