// The memory that a run uses, compared with the plan: the line that it ends with.
#include <cmath>
#include <cstdio>

#include "catch.h"
#include "runs.h"

namespace {

struct Memory {
  double peak = 0;  // MiB
  double planned = 0;
};

Memory memory_of(const std::vector<std::string>& words) {
  const Outcome outcome = trainctl(words);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const std::size_t line = outcome.err.rfind("memory: ");  // the first is planned
  REQUIRE(line != std::string::npos);
  Memory memory;
  REQUIRE(std::sscanf(outcome.err.c_str() + line, "memory: %lf MiB at most, planned %lf MiB",
                      &memory.peak, &memory.planned) == 2);
  return memory;
}

Memory memory_of(const std::string& config, const std::string& output,
                 const std::vector<std::string>& more) {
  return memory_of(train_words(config, output, more));
}

// About 17 M parameters, 64 tokens at a time.
std::vector<std::string> larger(const std::vector<std::string>& more) {
  std::vector<std::string> words;
  for (const char* change :
       {"model.hidden_size=512", "model.ffn_hidden_size=2048", "model.num_layers=4",
        "model.num_attention_heads=8", "model.seq_length=64", "model.vocab_size=8192",
        "train.steps=2", "train.global_batch_size=2", "train.micro_batch_size=1"}) {
    words.insert(words.end(), {"--set", change});
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("a run uses what was planned within a tenth") {
  const std::vector<std::string> more = GENERATE(
      std::vector<std::string>{},
      std::vector<std::string>{"--set", "model.family=llama", "--set", "precision.compute=bf16"},
      std::vector<std::string>{"--local-ranks", "2"});
  const TempDir dir;
  const Memory memory = memory_of(dir.write("a.yaml", small_config()), dir / "run", larger(more));
  INFO(memory.peak << " MiB, planned " << memory.planned);
  CHECK(memory.planned > 280);  // the fixed part does not decide
  CHECK(std::abs(memory.peak - memory.planned) <= 0.1 * memory.planned);
}

TEST_CASE("saving in the background, and resuming in another layout, use what was planned") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const auto check = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"train", "--config", config, "--output", dir / "run"};
    for (const std::string& word : larger(more)) words.push_back(word);
    const Memory memory = memory_of(words);
    INFO(memory.peak << " MiB, planned " << memory.planned);
    CHECK(std::abs(memory.peak - memory.planned) <= 0.1 * memory.planned);
    return memory.planned;
  };
  const double saved = check({"--set", "checkpoint.every=1"});
  const double loaded = check(
      {"--set", "train.steps=4", "--set", "parallel.tensor_parallel=2", "--local-ranks", "2"});
  CHECK(saved > loaded + 150);  // the copy of parameters and moments
}

TEST_CASE("a hundred steps use no more memory than five") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Memory few = memory_of(config, dir / "few", {"--steps", "5"});
  const Memory many = memory_of(config, dir / "many", {"--steps", "100"});
  CHECK(many.peak - few.peak < 1);
}
