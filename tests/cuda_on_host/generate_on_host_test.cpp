// `trainctl generate` of the built program on the CUDA module that the host's compiler makes.
#include "../cli/process.h"
#include "../cli/runs.h"
#include "catch.h"
#include "emulated.h"

namespace {

using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Four layers, trained over two tensor-parallel ranks until it knows some words.
Words learning(const TempDir& dir, const Words& more) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "to be or not to be that is the question. ";
  const std::string config = dir.write("a.yaml", R"(
model:
  {family: llama, num_layers: 4, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   num_query_groups: 2, seq_length: 96, vocab_size: 256}
data: {train: )" + dir.write("text.txt", text) + R"(, tokenizer: byte}
train: {steps: 40, global_batch_size: 8, seed: 1234}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3, warmup_steps: 2}
parallel: {tensor_parallel: 2}
)");
  return train_words(config, dir / "run", Words{"--local-ranks", "2"} + more);
}

/// More than one pass of tokens, then tokens one by one until the context is full and begins again.
Words continuing(const TempDir& dir, const Words& more = {}) {
  return Words{"generate",
               "--run",
               dir / "run",
               "--prompt",
               "to be or not to be that is "
               "the question. to be or not "
               "to be that is the",
               "--temperature",
               "0",
               "--max-tokens",
               "30"} +
         more;
}

}  // namespace

TEST_CASE("a CUDA device writes the text that the CPU writes, in every layout") {
  const TempDir dir;
  REQUIRE(trainctl(learning(dir, {})).exit_code == 0);
  const Outcome expected = trainctl(continuing(dir));
  INFO(expected.out << expected.err);
  REQUIRE(expected.exit_code == 0);
  const Words device{"--device", "cuda"};
  const Words layouts[] = {
      {},
      {"--local-ranks", "2"},
      {"--local-ranks", "4", "--set", "parallel.pipeline_stages=2"},
      {"--local-ranks", "2", "--set", "parallel.tensor_parallel=1", "--set",
       "parallel.pipeline_stages=2", "--set", "parallel.pipeline.result_broadcast=true"},
      {"--local-ranks", "2", "--set", "parallel.tensor_parallel=1", "--set",
       "parallel.pipeline_stages=2", "--set", "parallel.virtual_pipeline_stages=2", "--set",
       "parallel.pipeline.overlap_p2p_comm=true"}};
  for (const Words& layout : layouts) {
    const Outcome found =
        trainctl(continuing(dir, device + layout), {emulated, "CUDA_ON_HOST_PAGE_LOCKED=1"});
    INFO(found.err);
    CHECK(found.exit_code == 0);
    CHECK(found.out == expected.out);
  }
  for (const char* order : {"lazy", "eager"}) {
    const Outcome found = trainctl(continuing(dir, device + layouts[2]),
                                   {emulated, "CUDA_ON_HOST_ORDER=" + std::string(order)});
    CHECK(found.out == expected.out);
  }
  // Logits of 256 tokens that the host takes before they are there.
  const Outcome early =
      trainctl(continuing(dir, device), {emulated, "CUDA_ON_HOST_UNAWAITED=1024"});
  CHECK(early.exit_code == 0);
  CHECK(early.out != expected.out);
}

TEST_CASE("a CUDA device writes with experts what the CPU writes") {
  const TempDir dir;
  REQUIRE(
      trainctl(learning(dir, {"--set", "moe.num_experts=4", "--set", "moe.router_topk=2", "--set",
                              "moe.ffn_hidden_size=16", "--set",
                              "moe.shared_expert_intermediate_size=16", "--set", "train.steps=20"}))
          .exit_code == 0);
  const Outcome expected = trainctl(continuing(dir));
  for (const Words& layout : {Words{}, Words{"--local-ranks", "2"}}) {
    const Outcome found = trainctl(continuing(dir, Words{"--device", "auto"} + layout), {emulated});
    INFO(found.err);
    CHECK(found.exit_code == 0);
    CHECK(contains(found.err, "parallel.device auto: a CUDA device for each rank"));
    CHECK(found.out == expected.out);
  }
}

TEST_CASE("generate refuses a CUDA device as train does, and takes that of the run") {
  const TempDir dir;
  REQUIRE(trainctl(learning(dir, {"--device", "cuda", "--set", "train.steps=3", "--set",
                                  "train.global_batch_size=2", "--set", "model.seq_length=16"}),
                   {emulated})
              .exit_code == 0);
  struct Case {
    Words environment;
    std::string refusal;
  };
  const Case cases[] = {
      {{emulated, "CUDA_ON_HOST_DEVICES=1"}, "rank 1 of this machine has no device of its own"},
      {{emulated, "CUDA_ON_HOST_OTHER_FROM=1"}, "the ranks see different devices"},
      {{emulated, "CUDA_ON_HOST_MEMORY=10000"}, "MiB asked for on device "},
      {{"TRAINCTL_CUDA_MODULE=/nowhere.so"}, "/nowhere.so does not exist"}};
  for (const Case& one : cases) {
    const Outcome refused = trainctl(continuing(dir, {"--local-ranks", "2"}), one.environment);
    INFO(refused.err);
    CHECK(refused.exit_code == 69);
    CHECK(contains(refused.err, one.refusal));
    CHECK(refused.out.empty());
    CHECK(trainctl(continuing(dir, {"--device", "cpu"}), one.environment).exit_code == 0);
  }
}
