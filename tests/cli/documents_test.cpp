// Runs whose sequences have one document each, with padding or as long as the longest of a
// micro-batch.
#include <cmath>
#include <fstream>

#include "catch.h"
#include "process.h"
#include "runs.h"

namespace {

/// 120 documents of 2 to 40 bytes; sequences have 16 tokens.
std::string documents(const TempDir& dir) {
  std::string text;
  for (int i = 0; i < 120; ++i) {
    std::string words;
    for (int j = 0; j < 2 + i * 7 % 39; ++j) words += static_cast<char>('a' + (i + j * j) % 17);
    text += "{\"text\": \"" + words + "\"}\n";
  }
  return dir.write("documents.jsonl", text);
}

std::string config_of(const TempDir& dir, const std::string& data) {
  std::string text = small_config();
  const std::size_t begin = text.find("data: {");
  text.replace(begin, text.find('\n', begin) - begin,
               "data: {train: " + data + ", tokenizer: byte, packing: false, cache_dir: " +
                   (dir / "cache") + ", validation: {fraction: 0.1}}");
  return dir.write("a.yaml", text);
}

std::vector<double> losses_of(const std::string& directory) {
  std::vector<double> losses;
  for (const auto& line : metrics_of(directory)) {
    losses.push_back(line["loss"]);
    if (line.contains("val_loss")) losses.push_back(line["val_loss"]);
  }
  return losses;
}

void check_same(const std::vector<double>& one, const std::vector<double>& other) {
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(one[i] - other[i]) < 1e-4);
}

}  // namespace

TEST_CASE("micro-batches as long as their documents train as padded ones do") {
  const TempDir dir;
  const std::string config = config_of(dir, documents(dir));
  const std::vector<std::string> varies{"--set", "parallel.pipeline.variable_seq_lengths=true"};
  REQUIRE(trainctl(train_words(config, dir / "padded")).exit_code == 0);
  const Outcome one = trainctl(train_words(config, dir / "one", varies));
  INFO(one.err);
  REQUIRE(one.exit_code == 0);
  check_same(losses_of(dir / "one"), losses_of(dir / "padded"));
  std::vector<std::string> four = varies;
  for (const char* word :
       {"--verbose", "--local-ranks", "4", "--set", "parallel.tensor_parallel=2", "--set",
        "parallel.pipeline_stages=2", "--set", "train.micro_batch_size=1"}) {
    four.emplace_back(word);
  }
  const Outcome split = trainctl(train_words(config, dir / "four", four));
  INFO(split.err);
  REQUIRE(split.exit_code == 0);
  check_same(losses_of(dir / "four"), losses_of(dir / "padded"));
  CHECK(contains(split.err, "as planned on 4 of 4 ranks"));
  CHECK_FALSE(contains(split.err, "not as planned"));
  // A second run on the same data gives the same numbers.
  REQUIRE(trainctl(train_words(config, dir / "again", varies)).exit_code == 0);
  CHECK(repeatable_metrics(dir / "again") == repeatable_metrics(dir / "one"));
  const Outcome plan = trainctl({"plan", config, varies[0], varies[1]});
  CHECK(contains(plan.out, "as long as its longest document, in steps of 8 up to 16 tokens"));
}

TEST_CASE("an epoch of documents has their rows, and a file without documents has none") {
  const TempDir dir;
  const std::string config = config_of(dir, documents(dir));
  // The first 108 of 120 documents; those of more than 17 bytes give two or three rows.
  std::int64_t rows = 0;
  for (int i = 0; i < 108; ++i) rows += (2 + i * 7 % 39 - 2) / 16 + 1;
  const Outcome wrong = trainctl(
      {"validate", config, "--data", "--set", "train.epochs=1", "--set", "train.steps=1000"});
  CHECK(contains(wrong.err + wrong.out, std::to_string(rows)));
  std::ofstream(dir / "plain.bin", std::ios::binary) << std::string(400, '\0');
  const Outcome plain = trainctl(train_words(config_of(dir, dir / "plain.bin"), dir / "plain"));
  CHECK(plain.exit_code == 65);
  CHECK(contains(plain.err, "does not say where its documents begin"));
}
