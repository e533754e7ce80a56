// Positions after a document are not tokens: routers, losses and counts leave them out.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"
#include "runs.h"

namespace {

using Json = nlohmann::json;

/// Documents of 2 to 9 letters, with 28 labels.
constexpr std::array padded_texts{"srelt", "usctapirh", "wprrp", "uehueqmx",
                                  "vy",    "fys",       "jy",    "ip"};

std::string config_of(const TempDir& dir) {
  std::string lines;
  for (const char* document : padded_texts) lines += Json{{"text", document}}.dump() + "\n";
  return "model: {family: llama, num_layers: 2, hidden_size: 16, num_attention_heads: 2, "
         "seq_length: 16,\n        vocab_size: 256, ffn_hidden_size: 16}\n"
         "moe: {num_experts: 4, router_topk: 2, router_score_function: sigmoid,\n"
         "      router_enable_expert_bias: true, router_load_balancing_type: none}\n"
         "data: {train: " +
         dir.write("padded_texts.jsonl", lines) +
         ", tokenizer: byte, shuffle: false, packing: false}\n"
         "train: {steps: 1, global_batch_size: 8}\nlr_schedule: {max_lr: 0.0}\n"
         "output: {save_weights: false}\n";
}

/// The lines of a run with more options.
std::vector<Json> run(const TempDir& dir, const std::string& config,
                      const std::vector<std::string>& more) {
  const Outcome outcome = trainctl(train_words(config, dir / "run", more));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return metrics_of(dir / "run");
}

std::vector<std::string> set(const std::vector<std::string>& values) {
  std::vector<std::string> words;
  for (const std::string& value : values) words.insert(words.end(), {"--set", value});
  return words;
}

void check_close(const Json& found, const Json& expected) {
  CHECK(std::abs(found.get<double>() - expected.get<double>()) <=
        2e-5 * std::max(1.0, std::abs(expected.get<double>())));
}

}  // namespace

TEST_CASE("routers count the tokens of padded_texts, at every length of a sequence") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", config_of(dir));
  // The losses of each document alone, as long as its row, and added up.
  const std::vector<std::vector<int>> choices{{12, 12, 17, 15}, {16, 14, 11, 15}};
  for (const int length : {16, 8}) {
    const Json line = run(dir, config, set({"model.seq_length=" + std::to_string(length)})).front();
    for (std::size_t layer = 0; layer < 2; ++layer) {
      for (std::size_t e = 0; e < 4; ++e) {
        const double load = line["router"]["loads"][layer][e].get<double>();
        CHECK(std::abs(load - choices[layer][e] * 100 / 14.0) <= 0.51);
      }
    }
    CHECK(std::abs(line["loss"].get<double>() - 5.524759) < 1e-5);
    CHECK(line["tokens"] == 28);
    CHECK(line["positions"] == 8 * length);
    CHECK(line["labels"] == 28);
  }
  // A token of the data whose label has no weight is real.
  const Json masked =
      run(dir, config, set({"data.eod_mask_loss=true", "data.eod_token=97"})).front();
  CHECK(masked["tokens"] == 28);
  CHECK(masked["labels"] == 27);
  CHECK(contains(trainctl({"checkpoint", "inspect", dir / "run"}).out,
                 "28 tokens in 128 positions, 27 labels"));
}

TEST_CASE("padded_texts give the same steps at two lengths, cut to their own and over ranks") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", config_of(dir));
  const std::vector<std::string> steps{"train.steps=3",
                                       "lr_schedule.max_lr=0.01",
                                       "train.micro_batch_size=2",
                                       "moe.router_load_balancing_type=aux_loss",
                                       "moe.aux_loss_factor=0.1",
                                       "moe.z_loss_factor=0.1",
                                       "moe.capacity_factor=1",
                                       "moe.router_bias_update_rate=0.05"};
  const auto lines_of = [&](const std::vector<std::string>& values,
                            const std::vector<std::string>& words = {}) {
    std::vector<std::string> all = set(steps);
    const std::vector<std::string> more = set(values);
    all.insert(all.end(), more.begin(), more.end());
    all.insert(all.end(), words.begin(), words.end());
    return run(dir, config, all);
  };
  const std::vector<Json> expected = lines_of({});
  const std::string variable = "parallel.pipeline.variable_seq_lengths=true";
  for (const auto& found :
       {lines_of({"model.seq_length=8"}), lines_of({"model.seq_length=64", variable}),
        lines_of({"model.seq_length=64", variable, "parallel.expert_parallel=2"},
                 {"--local-ranks", "2"})}) {
    REQUIRE(found.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(found[i]["tokens"] == expected[i]["tokens"]);
      CHECK(found[i]["labels"] == expected[i]["labels"]);
      for (const char* key : {"loss", "grad_norm"}) check_close(found[i][key], expected[i][key]);
      for (const char* key : {"balance_loss", "z_loss", "entropy"}) {
        check_close(found[i]["router"][key], expected[i]["router"][key]);
      }
      CHECK(found[i]["router"]["loads"] == expected[i]["router"]["loads"]);
      CHECK(found[i]["router"]["dropped"] == expected[i]["router"]["dropped"]);
    }
  }
  CHECK(expected[0]["router"]["dropped"].get<double>() > 0);
}
