// evaluate, and generate's samples.
#include <cmath>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"
#include "runs.h"

namespace {

nlohmann::json evaluated(std::vector<std::string> words) {
  words.insert(words.begin(), "evaluate");
  words.insert(words.end(), {"--format", "json"});
  const Outcome outcome = trainctl(words);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return nlohmann::json::parse(outcome.out);
}

}  // namespace

TEST_CASE("evaluate gives the loss that the run had, in every layout, and on other data") {
  const TempDir dir;
  std::string text = small_config();
  text.replace(text.find("tokenizer: byte"), 15,
               "tokenizer: byte, validation: {fraction: 0.01, max_sequences: 40}");
  const std::string config = dir.write("a.yaml", text);
  REQUIRE(trainctl(train_words(config, dir / "run")).exit_code == 0);
  const double own = metrics_of(dir / "run").back()["val_loss"].get<double>();
  const auto alone = evaluated({"--run", dir / "run", "--max-sequences", "40"});
  CHECK(std::abs(alone["loss"].get<double>() - own) < 1e-5);
  CHECK(alone["sequences"] == 40);
  CHECK(alone["tokens"] == 640);
  CHECK(std::abs(alone["perplexity"].get<double>() - std::exp(own)) < 1e-2);
  CHECK(std::abs(alone["bits_per_byte"].get<double>() - own / std::log(2.0)) < 1e-4);
  const auto split = evaluated({config, "--set", "output.dir=" + (dir / "run"), "--max-sequences",
                                "40", "--local-ranks", "4", "--set", "parallel.tensor_parallel=2",
                                "--set", "parallel.pipeline_stages=2"});
  CHECK(std::abs(split["loss"].get<double>() - own) < 1e-4);
  const std::string other = dir.write("other.txt", std::string(400, '~'));
  const auto far = evaluated({"--run", dir / "run", "--data", other});
  CHECK(far["loss"].get<double>() > own);
  CHECK(far["data"] == other);
  CHECK(trainctl({"evaluate"}).exit_code == 2);
  const Outcome untrained = trainctl({"evaluate", config, "--set", "output.dir=" + (dir / "no")});
  CHECK(untrained.exit_code == 66);
  CHECK(contains(untrained.err, "has neither weights nor a checkpoint"));
}

TEST_CASE("weights that have diverged give no loss and no text") {
  const TempDir dir;
  std::string text = small_config();
  text.replace(text.find("max_lr: 1.0e-3"), 14, "max_lr: 1.0e+30");
  const std::string config = dir.write("a.yaml", text);
  REQUIRE(trainctl(train_words(config, dir / "run", {"--steps", "1"})).exit_code == 0);
  const std::string data = dir.write("a.txt", std::string(400, 'a'));
  for (const char* format : {"json", "text"}) {
    const Outcome outcome =
        trainctl({"evaluate", "--run", dir / "run", "--data", data, "--format", format});
    INFO(outcome.err);
    CHECK(outcome.exit_code == exits::diverged);
    CHECK(outcome.out.empty());
    CHECK(contains(outcome.err, "the loss on " + data + " is not finite"));
  }
  const Outcome words = trainctl({"generate", "--run", dir / "run", "--prompt", "The"});
  CHECK(words.exit_code == exits::diverged);
  CHECK(contains(words.err, "the logits are not finite"));
}

TEST_CASE("a run that has not saved anything says so") {
  const TempDir dir;
  dir.write("config.yaml", small_config());
  const Outcome text = trainctl({"generate", "--run", dir.path().string(), "--prompt", "The"});
  CHECK(text.exit_code == 66);
  CHECK(contains(text.err, " has neither a complete checkpoint nor model.safetensors"));
  const Outcome list = trainctl({"checkpoint", "ls", dir.path().string()});
  CHECK(list.exit_code == 0);
  CHECK(contains(list.err, " has no checkpoints\n"));
}

TEST_CASE("generate: several samples, top-p, and prompts from files and standard input") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  REQUIRE(trainctl(train_words(config, dir / "run")).exit_code == 0);
  const std::string prompt = dir.write("start.txt", "The licence\n");
  const std::vector<std::string> base = {"generate", "--run", dir / "run", "--max-tokens", "20"};
  const auto generate = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    const Outcome outcome = trainctl(more);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out;
  };
  const std::string three = generate({"--prompt-file", prompt, "--samples", "3"});
  const std::size_t first = three.find("\n---\nThe licence");
  REQUIRE(first != std::string::npos);
  const std::size_t second = three.find("\n---\nThe licence", first + 1);
  REQUIRE(second != std::string::npos);
  CHECK(three.substr(0, first + 1) == generate({"--prompt", "The licence"}));
  CHECK(three.substr(0, first) != three.substr(first + 5, second - first - 5));
  // The smallest share keeps the likeliest token only.
  CHECK(generate({"--prompt", "The", "--top-p", "1e-9"}) ==
        generate({"--prompt", "The", "--temperature", "0"}));
  const std::string program = TRAINCTL_PROGRAM;
  const Outcome piped = run_program("bash", {"-c", "echo The | '" + program + "' generate --run '" +
                                                       (dir / "run") + "' --max-tokens 20"});
  CHECK(piped.out == generate({"--prompt", "The"}));
  CHECK(trainctl({"generate", "--run", dir / "run", "--prompt", "a", "--top-p", "0"}).exit_code ==
        2);
  CHECK(trainctl({"generate", "--run", dir / "run", "--prompt-file", dir / "none"}).exit_code ==
        66);
}

TEST_CASE(
    "a vocabulary far larger than the tokenizer's is a warning, data that is missing an error") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const auto run = [&](const std::string& option) {
    return trainctl(train_words(config, dir / "run", {"--steps", "1", "--set", option}));
  };
  const Outcome large = run("model.vocab_size=1000");
  CHECK(large.exit_code == 0);
  CHECK(
      contains(large.err, "model.vocab_size is 1000, but the tokenizer byte has only 256 tokens"));
  CHECK_FALSE(contains(run("model.vocab_size=300").err, "has only"));
  const Outcome missing = run("data.train=none/book.txt");
  CHECK(missing.exit_code == 66);
  CHECK(contains(missing.err, "no text file or folder /"));
  CHECK(contains(missing.err, "none/book.txt"));
}
