// parallel.product_algorithms: timed, of the built program on the CUDA module that the host's
// compiler makes. Its cuBLASLt proposes four algorithms that sum in different orders, and a test
// says how long each takes.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "../cli/process.h"
#include "../cli/runs.h"
#include "catch.h"
#include "emulated.h"

namespace {

using Words = std::vector<std::string>;

const std::string small_timed = R"(
model:
  {family: gpt2, num_layers: 2, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   seq_length: 16, vocab_size: 256}
train: {steps: 4, global_batch_size: 4, micro_batch_size: 2, seed: 1234}
optimizer: {type: adamw, weight_decay: 0.1, clip_grad_norm: 0.5}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3, warmup_steps: 2}
checkpoint: {every: 1, keep: 0}
output: {save_weights: false}
parallel: {device: cuda, product_algorithms: timed, bucket_size: 2000, deadline_seconds: 120}
)";

const std::string third = "CUDA_ON_HOST_PRODUCT_TIMES=100,99,80,120";
const std::string second = "CUDA_ON_HOST_PRODUCT_TIMES=100,50,80,120";
const std::string tied = "CUDA_ON_HOST_PRODUCT_TIMES=100,99,98.5,120";

/// A run in DIR/output; it resumes if that exists already.
Outcome session(const TempDir& dir, const std::string& output, const Words& more,
                const Words& environment, int exit_code = 0) {
  const std::string text = dir.write("text.txt", std::string(4000, 'a') + "to be or not to be");
  Words words{"--set", "data.train=" + text,        "--set", "data.tokenizer=byte",
              "--set", "cluster.matmul_flops=1e12", "--set", "cluster.memory_bandwidth=1e12",
              "--set", "cluster.bandwidth=1e11",    "--set", "cluster.latency=1e-5"};
  words.insert(words.end(), more.begin(), more.end());
  Words all{emulated};
  all.insert(all.end(), environment.begin(), environment.end());
  words = train_words(dir.write("a.yaml", small_timed), dir / output, words);
  std::erase(words, "--overwrite");
  Outcome run = trainctl(words, all);
  INFO(run.err);
  CHECK(run.exit_code == exit_code);
  return run;
}

using Counts = std::array<long, 4>;

/// How many products a device computed by each proposal.
Counts counts_of(const Outcome& run, int device) {
  const std::string line = "products of device " + std::to_string(device) + " by proposal: ";
  const auto at = run.err.find(line);
  REQUIRE(at != std::string::npos);
  auto [a, b, c, d] = Counts{};
  REQUIRE(std::sscanf(run.err.c_str() + at + line.size(), "%ld %ld %ld %ld", &a, &b, &c, &d) == 4);
  return {a, b, c, d};
}

nlohmann::json table_in(const std::string& file) {
  std::ifstream stream(file);
  REQUIRE(stream);
  return nlohmann::json::parse(stream)["product_algorithms"];
}

const std::string table_name = "/product_algorithms.json";

bool times(const Outcome& run) { return contains(run.err, " are timed, in "); }

}  // namespace

TEST_CASE("all ranks compute products by the algorithm that rank 0 found to be the fastest") {
  const TempDir dir;
  const Words two{"--local-ranks", "2", "--set", "parallel.pipeline_stages=2"};
  const Outcome run = session(dir, "run", two, {third});
  INFO(run.err);
  CHECK(times(run));
  CHECK(contains(run.err, "which saves 20.0 % of the time of all"));
  const nlohmann::json table = table_in(dir / "run" + table_name);
  CHECK(table["cublaslt"] == 130000);
  CHECK(contains(table["device"].get<std::string>(), "CUDA on the host"));
  REQUIRE(table["algorithms"].size() > 5);
  for (const nlohmann::json& one : table["algorithms"]) CHECK(one["proposal"] == 2);
  CHECK(table_in(dir / "run/checkpoints/step-00000001" + table_name) == table);
  CHECK(table_in(dir / "run/checkpoints/step-00000004" + table_name) == table);
  // The second stage, with products that rank 0 does not have: one step of four by proposals.
  const auto [first, none, fastest, slowest] = counts_of(run, 1);
  CHECK(first > 0);
  CHECK(none == 0);
  CHECK(fastest == 3 * first);
  CHECK(slowest == 0);
  Words proposed = two;
  proposed.insert(proposed.end(), {"--set", "parallel.product_algorithms=proposed"});
  const Outcome plain = session(dir, "plain", proposed, {third});
  CHECK(!times(plain));
  CHECK(!std::filesystem::exists(dir / "plain" + table_name));
  CHECK(metrics_of(dir / "plain")[0]["loss"] == metrics_of(dir / "run")[0]["loss"]);
  CHECK(repeatable_metrics(dir / "plain") != repeatable_metrics(dir / "run"));
  // 1.5 % are no reason.
  const Outcome kept = session(dir, "kept", two, {tied});
  CHECK(contains(kept.err, "0 change their algorithm"));
  CHECK(repeatable_metrics(dir / "kept") == repeatable_metrics(dir / "plain"));
}

TEST_CASE("products leave multiprocessors to the collectives of several ranks") {
  const TempDir dir;
  const Words margin{"--set", "parallel.product_sm_margin=1"};
  Words two{"--local-ranks", "2", "--set", "parallel.data_parallel=2"};
  two.insert(two.end(), margin.begin(), margin.end());
  const Outcome run = session(dir, "run", two, {third});
  INFO(run.err);
  CHECK(contains(run.err, "products of device 0 for 3 multiprocessors: "));
  CHECK(contains(run.err, "products of device 1 for 3 multiprocessors: "));
  CHECK(!contains(run.err, "for 0 multiprocessors"));
  const nlohmann::json table = table_in(dir / "run" + table_name);
  for (const nlohmann::json& one : table["algorithms"]) {
    CHECK(one["product"]["multiprocessors"] == 3);
    CHECK(one["proposal"] == 2);
  }
  const auto [first, none, fastest, slowest] = counts_of(run, 1);
  CHECK(fastest == 3 * first);
  const Outcome alone = session(dir, "alone", margin, {third});
  INFO(alone.err);
  CHECK(contains(alone.err, "has no effect: one rank has no collectives"));
  CHECK(contains(alone.err, "products of device 0 for 0 multiprocessors: "));
  CHECK(!contains(alone.err, "for 3 multiprocessors"));
  two.back() = "parallel.product_sm_margin=4";
  const Outcome all = session(dir, "all", two, {third}, 69);
  INFO(all.err);
  CHECK(contains(all.err, "the device has 4 multiprocessors: none is left for products"));
}

TEST_CASE("muon's products have the first proposal always, and all multiprocessors") {
  const TempDir dir;
  const Words muon{"--set", "optimizer.type=muon"};
  const Outcome alone = session(dir, "alone", muon, {third});
  INFO(alone.err);
  // Each of 6 matrices in each of 2 layers has 3 products in each of 5 steps.
  constexpr long of_muon = 2L * 6 * 5 * 3;
  const auto [first, none, fastest, slowest] = counts_of(alone, 0);
  CHECK(none == slowest);
  CHECK(fastest > slowest);
  CHECK(first - slowest == 4 * of_muon + (fastest - slowest) / 3);
  Words two{"--local-ranks", "2", "--set", "parallel.product_sm_margin=1"};
  two.insert(two.end(), muon.begin(), muon.end());
  const Outcome run = session(dir, "run", two, {third});
  INFO(run.err);
  CHECK(contains(run.err, "products of device 0 for 3 multiprocessors: "));
  const std::string all = "products of device 1 for 0 multiprocessors: ";
  const auto at = run.err.find(all);
  REQUIRE(at != std::string::npos);
  CHECK(std::strtol(run.err.c_str() + at + all.size(), nullptr, 10) == 4 * of_muon / 2);
}

TEST_CASE("a session that resumes takes the stored algorithms, and times nothing") {
  const TempDir dir;
  const Outcome whole = session(dir, "whole", {}, {third});
  CHECK(times(whole));
  session(dir, "parts", {"--stop-after", "2"}, {third});
  const Outcome rest = session(dir, "parts", {}, {second});
  INFO(rest.err);
  CHECK(!times(rest));
  CHECK(contains(rest.err, "step-00000002/product_algorithms.json"));
  const Counts counts = counts_of(rest, 0);
  CHECK(counts[0] + counts[1] + counts[3] == 0);
  CHECK(counts[2] > 0);
  CHECK(repeatable_metrics(dir / "parts") == repeatable_metrics(dir / "whole"));
  CHECK(table_in(dir / "parts" + table_name) ==
        table_in(dir / "parts/checkpoints/step-00000004" + table_name));
  // Steps that are graphs are captured after the choice.
  const Outcome graphs = session(dir, "graphs", {"--set", "parallel.cuda_graphs=true"}, {third});
  CHECK(times(graphs));
  CHECK(!contains(graphs.err, "row by row"));
  CHECK(repeatable_metrics(dir / "graphs") == repeatable_metrics(dir / "whole"));
}

TEST_CASE("algorithms of another library, damaged ones and missing ones are timed again") {
  const TempDir dir;
  const std::string folder = dir / "run/checkpoints/step-0000000";
  const Words long_run{"--set", "train.steps=10", "--stop-after", "2"};
  const auto go_on = [&](const Words& environment) {
    return session(dir, "run", long_run, environment);
  };
  CHECK(times(go_on({third})));
  const Outcome other = go_on({second, "CUDA_ON_HOST_CUBLASLT=130001"});
  INFO(other.err);
  CHECK(times(other));
  CHECK(contains(other.err, "is of cuBLASLt 130000 on CUDA on the host"));
  CHECK(contains(other.err, "this is cuBLASLt 130001 on"));
  for (const nlohmann::json& one : table_in(folder + "4" + table_name)["algorithms"]) {
    CHECK(one["proposal"] == 1);
  }
  {
    std::fstream file(folder + "4" + table_name);
    std::string text;
    std::getline(file, text);
    file.seekp(static_cast<std::streamoff>(text.find("\"proposal\":1")) + 11);
    file << '0';
  }
  const Outcome damaged = go_on({third, "CUDA_ON_HOST_CUBLASLT=130001"});
  INFO(damaged.err);
  CHECK(times(damaged));
  CHECK(contains(damaged.err, "does not have the hash in it; it was changed or damaged"));
  std::ofstream(folder + "6" + table_name) << "{";
  const Outcome cut = go_on({third});
  INFO(cut.err);
  CHECK(times(cut));
  CHECK(contains(cut.err, "product_algorithms.json is damaged: "));
  std::filesystem::remove(folder + "8" + table_name);
  std::filesystem::create_directory(folder + "8" + table_name);
  const Outcome folded = go_on({third});
  INFO(folded.err);
  CHECK(times(folded));
  CHECK(contains(folded.err, "it is a directory; matrix products are timed again"));
}

TEST_CASE("bench step times the products that its steps make") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_timed + "data: {train: none}\n");
  const auto bench = [&](const Words& more) {
    Words words{"bench", "step", "--config", config, "--pairs", "1", "--format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    return trainctl(words, {emulated, third});
  };
  const Outcome timed = bench({});
  INFO(timed.err);
  REQUIRE(timed.exit_code == 0);
  CHECK(times(timed));
  CHECK(nlohmann::json::parse(timed.out)["product_algorithms"] == "timed");
  const auto [first, none, fastest, slowest] = counts_of(timed, 0);
  // Each proposal is timed as often as the others; steps after the first take the fastest.
  CHECK(none == slowest);
  CHECK(first > slowest);
  CHECK(fastest > 2 * first);
  const std::string proposals = "parallel.product_algorithms=proposed";
  const Outcome proposed = bench({"--set", proposals});
  CHECK(!times(proposed));
  CHECK(counts_of(proposed, 0)[2] == 0);
  // Timed algorithms belong to the process: only steps that are graphs keep the first proposals.
  const std::string change = "parallel.product_algorithms=timed";
  CHECK(bench({"--set", proposals, "--against", change}).exit_code == 0);
  const Outcome refused =
      bench({"--set", proposals, "--set", "parallel.cuda_graphs=false", "--against", change});
  CHECK(refused.exit_code == exits::usage);
  CHECK(contains(refused.err, "both sides would have the products of one"));
}
