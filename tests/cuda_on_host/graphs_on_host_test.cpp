// Steps as graphs (parallel.cuda_graphs) of the built program on the CUDA module that the host's
// compiler makes: the same numbers, in every bit, as row by row.
#include "../cli/process.h"
#include "../cli/runs.h"
#include "catch.h"
#include "emulated.h"

namespace {

using Words = std::vector<std::string>;

const std::string small_graphs = R"(
model:
  {family: gpt2, num_layers: 2, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   seq_length: 16, vocab_size: 256, hidden_dropout: 0.1, attention_dropout: 0.1}
train: {steps: 6, global_batch_size: 4, seed: 1234, validate_every: 3}
optimizer: {type: adamw, weight_decay: 0.1, clip_grad_norm: 0.5}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3, warmup_steps: 2}
parallel: {device: cuda, bucket_size: 2000, deadline_seconds: 60}
)";

/// The metrics of a run without times, with or without graphs; where the seed of the emulated
/// device, and with it the order of everything, is another one.
std::string metrics_with(const std::string& graphs, const Words& layout,
                         const Words& environment = {}) {
  const TempDir dir;
  const std::string text = dir.write("text.txt", std::string(4000, 'a') + "to be or not to be");
  Words words{"--set", "data.train=" + text,
              "--set", "data.tokenizer=byte",
              "--set", "data.validation.fraction=0.1",
              "--set", "data.validation.max_sequences=4",
              "--set", "parallel.cuda_graphs=" + graphs,
              "--set", "cluster.matmul_flops=1e12",
              "--set", "cluster.memory_bandwidth=1e12",
              "--set", "cluster.bandwidth=1e11",
              "--set", "cluster.latency=1e-5"};
  words.insert(words.end(), layout.begin(), layout.end());
  Words all{emulated};
  all.insert(all.end(), environment.begin(), environment.end());
  const Outcome run =
      trainctl(train_words(dir.write("a.yaml", small_graphs), dir / "run", words), all);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  return repeatable_metrics(dir / "run");
}

}  // namespace

TEST_CASE("steps that are graphs have the same numbers as steps row by row, in every bit") {
  const Words layouts[] = {
      {},
      {"--set", "train.micro_batch_size=1", "--set", "precision.compute=bf16"},
      {"--local-ranks", "2", "--set", "parallel.parallel_optimizer.enable=true"},
      {"--local-ranks", "4", "--set", "parallel.tensor_parallel=2", "--set",
       "parallel.sequence_parallel=true", "--set", "parallel.pipeline_stages=2"},
      {"--local-ranks", "2", "--set", "parallel.context_parallel=2", "--set", "offload.enable=true",
       "--set", "offload.num_layers=1"}};
  int seed = 1;
  for (const Words& layout : layouts) {
    const std::string expected = metrics_with("false", layout);
    CHECK(contains(expected, "val_loss"));
    CHECK(metrics_with("true", layout, {"CUDA_ON_HOST_SEED=" + std::to_string(++seed)}) ==
          expected);
  }
  const std::string expected = metrics_with("false", layouts[3]);
  CHECK(metrics_with("true", layouts[3], {"CUDA_ON_HOST_ORDER=lazy"}) == expected);
}

TEST_CASE("a batch that grows makes other graphs") {
  const Words ramp{"--set", "train.rampup_batch_size=[2, 2, 4]", "--set",
                   "train.micro_batch_size=1"};
  CHECK(metrics_with("true", ramp) == metrics_with("false", ramp));
}

TEST_CASE("verify finds layouts equal to a single rank where steps are graphs") {
  const TempDir dir;
  const Outcome outcome =
      trainctl({"verify", "--config", dir.write("a.yaml", small_graphs), "--set", "data.train=none",
                "--set", "parallel.cuda_graphs=true", "--layouts",
                "dp1+m4,tp2sp+pp2,pp2+dp2+m2+zero2,dp2+zero3", "--steps", "2"},
               {emulated});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out, "4 layouts equal to a single rank over 2 steps"));
}

TEST_CASE("what is not the same in every step has no graph, and a warning says why") {
  const TempDir dir;
  const auto warning = [&](const Words& more) {
    Words words{"validate",        "--config", dir.write("a.yaml", small_graphs), "--set",
                "data.train=none", "--set",    "parallel.cuda_graphs=true"};
    words.insert(words.end(), more.begin(), more.end());
    return trainctl(words, {emulated}).err;
  };
  CHECK(!contains(warning({}), "parallel.cuda_graphs"));
  CHECK(contains(warning({"--set", "parallel.device=cpu"}),
                 "parallel.cuda_graphs: has no effect: the device is the CPU"));
  CHECK(contains(warning({"--set", "model.family=llama", "--set", "moe.num_experts=4"}),
                 "parallel.cuda_graphs: has no effect: routers of experts decide"));
}
