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

/// A run of six steps; `more` are further words.
Outcome run_with(const TempDir& dir, const std::string& graphs, const Words& more,
                 const Words& environment) {
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
  words.insert(words.end(), more.begin(), more.end());
  Words all{emulated};
  all.insert(all.end(), environment.begin(), environment.end());
  Outcome run = trainctl(train_words(dir.write("a.yaml", small_graphs), dir / "run", words), all);
  INFO(run.err);
  CHECK(run.exit_code == 0);
  return run;
}

/// How often a run says that its steps run row by row although it asked for graphs.
int refusals(const Outcome& run) {
  const std::string said = "parallel.cuda_graphs has no effect, steps run row by row";
  int found = 0;
  for (auto at = run.err.find(said); at != std::string::npos; at = run.err.find(said, at + 1)) {
    ++found;
  }
  return found;
}

/// The metrics of a run without times, with or without graphs; where the seed of the emulated
/// device, and with it the order of everything, is another one.
std::string metrics_with(const std::string& graphs, const Words& layout,
                         const Words& environment = {}) {
  const TempDir dir;
  CHECK(refusals(run_with(dir, graphs, layout, environment)) == 0);
  return repeatable_metrics(dir / "run");
}

}  // namespace

TEST_CASE("steps that are graphs have the same numbers as steps row by row, in every bit") {
  const Words layouts[] = {
      {},
      {"--set", "train.micro_batch_size=1", "--set", "precision.compute=bf16"},
      {"--local-ranks", "2", "--set", "parallel.parallel_optimizer.enable=true"},
      {"--local-ranks", "2", "--set", "parallel.parallel_optimizer.enable=true", "--set",
       "optimizer.type=muon", "--set", "optimizer.ema_decay=0.5"},
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
    if (&layout == &layouts[4]) {
      CHECK(metrics_with("true", layout, {"CUDA_ON_HOST_ORDER=lazy"}) == expected);
    }
  }
}

TEST_CASE("a batch that grows makes other graphs") {
  const Words ramp{"--set", "train.rampup_batch_size=[2, 2, 6]", "--set",
                   "train.micro_batch_size=1"};
  CHECK(metrics_with("true", ramp) == metrics_with("false", ramp));
}

TEST_CASE("steps that only the run knows to be no graphs run row by row, and a warning says why") {
  const Words layout{"--local-ranks", "2", "--set", "train.rampup_batch_size=[2, 2, 4]"};
  const Words without{"CUDA_ON_HOST_NO_NCCL=1"};
  const TempDir rows;
  const TempDir graphs;
  CHECK(refusals(run_with(rows, "false", layout, without)) == 0);
  const Outcome run = run_with(graphs, "true", layout, without);
  INFO(run.err);
  CHECK(refusals(run) == 1);  // not of each rank, nor for each size of the batch
  CHECK(contains(run.err, "row by row: tensors travel through the host's memory"));
  CHECK(repeatable_metrics(graphs / "run") == repeatable_metrics(rows / "run"));
  const Outcome verified =
      trainctl({"verify", "--config", graphs.write("a.yaml", small_graphs), "--set",
                "data.train=none", "--set", "parallel.cuda_graphs=true", "--layouts", "dp2"},
               {emulated});
  INFO(verified.out << verified.err);
  CHECK(verified.exit_code == 0);
  CHECK(contains(verified.err, "row by row: hooks of the program look inside a step"));
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
