// Starting from public models and giving them away, as docs/huggingface.md says.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>

#include "catch.h"
#include "runs.h"

namespace {

namespace fs = std::filesystem;

const fs::path source = TRAINCTL_SOURCE_DIR;

fs::path reference_model(const std::string& name) {
  return source / "tests/reference/hugging_face" / name;
}

/// The code blocks of a page in that language.
std::vector<std::string> blocks(const std::string& page, const std::string& language) {
  std::vector<std::string> found;
  const std::string open = "```" + language + "\n";
  for (std::size_t at = page.find(open); at != std::string::npos; at = page.find(open, at + 1)) {
    const std::size_t begin = at + open.size();
    found.push_back(page.substr(begin, page.find("```", begin) - begin));
  }
  return found;
}

/// Runs a line of the shell in a folder, with `trainctl` as the built program.
Outcome shell(const TempDir& dir, const std::string& line) {
  const std::string bin = fs::path(TRAINCTL_PROGRAM).parent_path().string();
  return run_program("/bin/sh", {"-c", "cd '" + dir.path().string() + "' && PATH='" + bin +
                                           "':\"$PATH\" && " + line});
}

void copy_model(const TempDir& dir, const std::string& name, const std::string& to) {
  fs::create_directories(dir.path() / "models");
  fs::copy(reference_model(name), dir.path() / to);
}

std::string book() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The licence of line " + std::to_string(i * i) + ".\n";
  return text;
}

double first_loss(const std::string& run) { return metrics_of(run).front()["loss"]; }

}  // namespace

TEST_CASE("the commands of docs/huggingface.md work") {
  const std::string page = read_file(source / "docs/huggingface.md");
  const TempDir dir;
  copy_model(dir, "bytes", "models/small");
  dir.write("book.txt", book());
  dir.write("continue.yaml", blocks(page, "yaml").at(0));
  std::istringstream lines(blocks(page, "sh").at(0));
  std::vector<Outcome> outcomes;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    outcomes.push_back(shell(dir, line));
    INFO(outcomes.back().err);
    REQUIRE(outcomes.back().exit_code == 0);
  }
  REQUIRE(outcomes.size() == 7);
  CHECK(contains(outcomes[0].out, "not checked: data, disk, memory, weights"));
  CHECK(outcomes[4].out.starts_with("The"));
  const auto metrics = metrics_of(dir / "runs/continued");
  REQUIRE(metrics.size() == 20);
  CHECK(metrics.back()["loss"].get<double>() < metrics.front()["loss"].get<double>());
  CHECK(contains(read_file(dir / "models/continued/config.json"), "\"bfloat16\""));
  CHECK(
      contains(read_file(dir / "models/continued/generation_config.json"), "\"eos_token_id\": 0"));
}

TEST_CASE("every layout starts from the same weights and generates the same text") {
  const TempDir dir;
  copy_model(dir, "bytes", "models/small");
  dir.write("book.txt", book());
  dir.write("a.yaml",
            "model: {from: models/small, seq_length: 32}\n"
            "data: {train: book.txt, tokenizer: byte}\n"
            "train: {steps: 2, global_batch_size: 4}\nlr_schedule: {max_lr: 1.0e-3}\n");
  REQUIRE(shell(dir, "trainctl train --config a.yaml --output runs/one").exit_code == 0);
  const Outcome split = shell(dir,
                              "trainctl train --config a.yaml --output runs/four --local-ranks 4 "
                              "--set parallel.tensor_parallel=2 --set parallel.pipeline_stages=2");
  INFO(split.err);
  REQUIRE(split.exit_code == 0);
  CHECK(std::abs(first_loss(dir / "runs/one") - first_loss(dir / "runs/four")) < 1e-5);
  // New weights have the loss of guessing, log(256) = 5.5; these are far from it.
  CHECK(first_loss(dir / "runs/one") > 7.0);
  const std::string words =
      "trainctl generate --from models/small --tokenizer byte --prompt 'The' --max-tokens 12 "
      "--temperature 0";
  const Outcome alone = shell(dir, words);
  REQUIRE(alone.exit_code == 0);
  CHECK(alone.out.size() > 4);
  const Outcome ranks = shell(dir, words + " --local-ranks 2 --set parallel.tensor_parallel=2");
  INFO(ranks.err);
  CHECK(ranks.out == alone.out);
}

TEST_CASE("exports of a run are its weights, through Hugging Face's and llm.c's forms") {
  const TempDir dir;
  copy_model(dir, "gpt2", "models/gpt2");
  const auto run = [&](const std::string& words) {
    const Outcome outcome = shell(dir, "trainctl checkpoint " + words);
    INFO(words << "\n" << outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out;
  };
  const std::string said = run("export --from models/gpt2 --to llmc m.bin");
  CHECK(contains(said, "parameters in fp32"));
  run("import --from llmc m.bin --to models/again");
  run("import --from hf models/gpt2 --to models/checked");
  const std::string weights = read_file(dir / "models/checked/model.safetensors");
  CHECK(weights.size() > 30'000);
  CHECK(weights == read_file(dir / "models/again/model.safetensors"));
  run("export --from models/checked --to hf models/cut --shard-size 9KB");
  CHECK(fs::exists(dir / "models/cut/model.safetensors.index.json"));
  run("import --from hf models/cut --to models/joined");
  CHECK(weights == read_file(dir / "models/joined/model.safetensors"));
}

TEST_CASE("what cannot be converted is refused before anything is written") {
  const TempDir dir;
  copy_model(dir, "llama", "models/llama");
  dir.write("a.bin", "x");
  struct Case {
    const char* words;
    int code;
    const char* said;
  };
  const Case cases[] = {
      {"export --from models/llama --to llmc b.bin", 69, "llm.c's file holds GPT-2 only"},
      {"export --from models/llama --to hf models/llama", 2, "models/llama exists already"},
      {"export --from models/llama --to llmc a.bin", 2, "a.bin exists already"},
      {"export --from models --to hf out", 66, "has neither the config.yaml of a run"},
      {"export --from models/none --to hf out", 66, "no model directory models/none"},
      {"export --from models/llama --to onnx out", 2, "expected hf DIR or llmc FILE"},
      {"export --from models/llama --to hf out --shard-size 3apples", 2, "expected a size such as"},
      {"export --from models/llama --to hf out --shard-size 0", 2, "expected a size such as"},
      {"export --from models/llama --to llmc b.bin --shard-size 5GB", 2, "is for hf only"},
      {"import --from llmc a.bin --to out", 65, "too few for the header"},
      {"import --from hf models/llama", 2, "--to is required"},
  };
  for (const Case& test : cases) {
    INFO(test.words);
    const Outcome outcome = shell(dir, std::string("trainctl checkpoint ") + test.words);
    INFO(outcome.err);
    CHECK(outcome.exit_code == test.code);
    CHECK(contains(outcome.err, test.said));
    CHECK_FALSE(fs::exists(dir / "out"));
    CHECK_FALSE(fs::exists(dir / "b.bin"));
  }
}

TEST_CASE("weights that do not fit are refused before the output directory is touched") {
  const TempDir dir;
  copy_model(dir, "bytes", "models/small");
  dir.write("book.txt", book());
  dir.write("a.yaml",
            "model: {from: models/small, seq_length: 32}\n"
            "data: {train: book.txt, tokenizer: byte}\n"
            "train: {steps: 2, global_batch_size: 4}\nlr_schedule: {max_lr: 1.0e-3}\n"
            "output: {dir: runs/one}\n");
  const Outcome same = shell(dir, "trainctl train --config a.yaml --output models/small/../small");
  CHECK(same.exit_code == 2);
  CHECK(contains(same.err, "output.dir is model.from"));
  CHECK(fs::file_size(dir / "models/small/model.safetensors") > 5'000);
  fs::resize_file(dir / "models/small/model.safetensors", 5'000);
  CHECK(shell(dir, "trainctl validate --config a.yaml").exit_code == 0);
  CHECK(shell(dir, "trainctl plan --config a.yaml").exit_code == 0);
  const Outcome cut = shell(dir, "trainctl train --config a.yaml");
  CHECK(cut.exit_code == 65);
  CHECK(contains(cut.err, "models/small/model.safetensors: tensor '"));
  CHECK(contains(cut.err, "the file at 5000"));
  CHECK_FALSE(fs::exists(dir / "runs"));
  const Outcome differs =
      shell(dir, "trainctl validate --config a.yaml --set model.hidden_size=32");
  CHECK(differs.exit_code == 78);
  CHECK(contains(differs.err, "hidden_size is 32, but models/small/config.json says 16"));
  const Outcome both = shell(dir, "trainctl generate --run a --from b --prompt x --max-tokens 1");
  CHECK(both.exit_code == 2);
  CHECK(contains(both.err, "one of them"));
  const Outcome no_tokens =
      shell(dir, "trainctl generate --from models/small --prompt x --max-tokens 1");
  CHECK(no_tokens.exit_code == 2);
  CHECK(contains(no_tokens.err, "--tokenizer: byte, sentencepiece:MODEL or hf:DIR"));
}
