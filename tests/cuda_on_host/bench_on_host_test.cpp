// The benchmarks of the built program on the emulated device: that they run and say what they
// should; the figures mean nothing there.
#include <nlohmann/json.hpp>
#include <set>

#include "../cli/process.h"
#include "catch.h"

namespace {

const std::string emulated = "TRAINCTL_CUDA_MODULE=" TRAINCTL_EMULATED_CUDA;

const std::string small = R"(
model:
  {family: llama, num_layers: 1, hidden_size: 16, ffn_hidden_size: 32, num_attention_heads: 4,
   num_query_groups: 2, seq_length: 16, vocab_size: 31, make_vocab_size_divisible_by: 16}
data: {train: none}
train: {steps: 100, global_batch_size: 2}
lr_schedule: {max_lr: 1.0e-2}
parallel: {device: cuda}
)";

Outcome bench(const std::vector<std::string>& words) {
  std::vector<std::string> all{"bench"};
  all.insert(all.end(), words.begin(), words.end());
  return trainctl(all, {emulated});
}

}  // namespace

TEST_CASE("bench ops times every kernel of the table on a device") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small);
  const auto kernels = [&](const std::string& device, const std::string& type) {
    const Outcome outcome =
        bench({"ops", "--config", config, "--format", "json", "--set", "parallel.device=" + device,
               "--set", "precision.compute=" + type});
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    std::set<std::string> found;
    for (const auto& row : nlohmann::json::parse(outcome.out)) {
      found.insert(row["kernel"]);
      CHECK(row["seconds"].get<double>() > 0);
      CHECK(row["ceiling_fraction"].get<double>() > 0);
    }
    return found;
  };
  const std::set<std::string> all = kernels("cpu", "fp32");
  CHECK(all.size() > 30);
  CHECK(kernels("cuda", "fp32") == all);
  CHECK(kernels("cuda", "bf16") == all);
  const Outcome table = bench({"ops", "--config", config});
  CHECK(contains(table.out, "on CUDA on the host, 4 multiprocessors: copies "));
}

TEST_CASE("bench step compares a step with its products on a device") {
  const TempDir dir;
  const Outcome outcome =
      bench({"step", "--config", dir.write("a.yaml", small), "--pairs", "2", "--format", "json"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const auto found = nlohmann::json::parse(outcome.out);
  CHECK(found["tokens_per_second"].get<double>() > 0);
  CHECK(found["step_over_products"].get<double>() > 1);
  CHECK(found["device"] == "CUDA on the host, 4 multiprocessors");
}

TEST_CASE("bench comm measures NCCL between devices, and needs one for each rank") {
  const Outcome outcome = bench({"comm", "--local-ranks", "3", "--device", "cuda", "--max-bytes",
                                 "4096", "--iterations", "2", "--format", "json"});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const auto found = nlohmann::json::parse(outcome.out);
  CHECK(found["ranks"] == 3);
  CHECK(found["wire"] == "NCCL on CUDA on the host");
  CHECK(found["operations"].size() == 1 + 6 * 2);
  for (const auto& row : found["operations"]) CHECK(row["wrong"] == 0);
  const Outcome many = bench({"comm", "--local-ranks", "5", "--device", "cuda"});
  CHECK(many.exit_code == 69);
  CHECK(contains(many.err, "has no device of its own: 4 CUDA device(s) are visible"));
}
