// auto_parallel through the built program: every command takes it, the answer is kept, and
// what was found is the layout written by hand.
#include <fstream>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"
#include "runs.h"
#include "thorough.h"

namespace {

using Words = std::vector<std::string>;

/// Wide enough for rounds that cut weights.
std::string model(const std::string& more = "") {
  return "model: {family: gpt2, num_layers: 2, hidden_size: 128, num_attention_heads: 8, "
         "seq_length: 8,\n"
         "        vocab_size: 256" +
         more +
         "}\n"
         "data: {train: /usr/share/common-licenses, tokenizer: byte}\n"
         "train: {steps: 4, global_batch_size: 2}\n"
         "lr_schedule: {max_lr: 1.0e-3}\n";
}

const std::string stale_code = "layout-stale";
const std::string file_code = "search-load-file";
const std::string mode = "parallel: {parallel_mode: auto_parallel}\n";

Outcome planned(const std::string& command, const std::string& config, const Words& more = {}) {
  Words words = {command, "--config", config, "--world-size", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return trainctl(words);
}

nlohmann::json plan_json(const std::string& config, const Words& more = {}) {
  Words words = {"--format", "json"};
  words.insert(words.end(), more.begin(), more.end());
  const Outcome outcome = planned("plan", config, words);
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return nlohmann::json::parse(outcome.out);
}

Outcome train_four(const std::string& config, const std::string& output, const Words& more = {}) {
  Words words = {"train", "--config", config, "--output", output, "--local-ranks", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return trainctl(words);
}

}  // namespace

TEST_CASE("validate, plan and verify take auto_parallel, and tell what was found") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", model() + mode);
  const Outcome valid = planned("validate", config);
  INFO(valid.out << valid.err);
  CHECK(valid.exit_code == 0);
  CHECK(
      contains(valid.out, "auto_parallel: recursive_programming over 4 ranks: tensor_parallel 2"));
  const Outcome table = planned("plan", config, {"--explain"});
  CHECK(contains(table.out, "search  recursive_programming"));
  CHECK(contains(table.out, "round 2, parts x 2"));
  const nlohmann::json json = plan_json(config);
  CHECK(json["mode"] == "semi_auto_parallel");
  CHECK(json["search"]["tensor_parallel"] == json["mesh"]["tp"]);
  CHECK(json["search"]["products"].size() == 13);
  CHECK(json["search"]["products"][0]["rounds"].size() == 2);
  const Outcome proof = planned("verify", config, {"--steps", "1", "--set", "data.train=none"});
  INFO(proof.out << proof.err);
  CHECK(proof.exit_code == 0);
  CHECK(contains(proof.out, "1 layout equal"));
}

TEST_CASE("ten layouts that were found equal a single rank") {
  const TempDir dir;
  const std::string experts =
      "moe: {num_experts: 4, router_topk: 2, first_dense_layers: 1, expert_group_size: 8}\n";
  std::string gated = model();
  gated.replace(gated.find("gpt2"), 4, "llama");
  const auto auto_with = [](const std::string& keys) {
    return "parallel: {parallel_mode: auto_parallel" + keys + "}\n";
  };
  const std::string spread =
      ", search_mode: sharding_propagation, tensor_parallel: 2, operator_splits: ";
  const std::pair<std::string, const char*> layouts[] = {
      {model() + auto_with(", search_mode: dynamic_programming, tensor_parallel: 2"), "4"},
      {gated + auto_with(spread + "{feed_forward: features}"), "4"},
      {model() + experts + auto_with(""), "4"},
      {model() + auto_with(""), "8"},
      {gated + auto_with(", sequence_parallel: true"), "4"},
      {gated + auto_with(", pipeline_stages: 2, tensor_parallel: 2"), "4"},
      {gated + auto_with(", tensor_parallel: 4, operator_splits: {feed_forward: features}"), "8"},
      {model() + auto_with(spread + "{attention: tokens}"), "4"},
      {gated + auto_with(spread + "{head: whole}, sequence_parallel: true"), "4"},
      {model() + experts +
           auto_with(spread + "{attention: features}, expert_parallel: 2, sequence_parallel: true"),
       "4"}};
  std::size_t count = 0;
  for (const auto& [text, ranks] : layouts) {
    if (!thorough() && ++count > 3) break;
    const std::string config = dir.write("l.yaml", text);
    const Outcome outcome = trainctl({"verify", "--config", config, "--world-size", ranks,
                                      "--steps", "1", "--set", "data.train=none"});
    INFO(text << outcome.out << outcome.err);
    CHECK(outcome.exit_code == 0);
  }
}

TEST_CASE("a strategy file of the answer is the same layout by hand") {
  const TempDir dir;
  for (const std::string keys : {"", ", search_mode: dynamic_programming, tensor_parallel: 2",
                                 ", search_mode: sharding_propagation, tensor_parallel: 2, "
                                 "operator_splits: {attention: tokens}"}) {
    const std::string config =
        dir.write("a.yaml", model() + "parallel: {parallel_mode: auto_parallel" + keys + "}\n");
    const std::string file = dir / "s.json";
    const nlohmann::json found =
        plan_json(config, {"--set", "parallel.strategy_ckpt_config.save_file=" + file});
    const std::string by_hand =
        dir.write("b.yaml", model() +
                                "parallel: {parallel_mode: semi_auto_parallel, tensor_parallel: 2, "
                                "strategy_ckpt_config: "
                                "{load_file: " +
                                file + "}}\n");
    CHECK(plan_json(by_hand)["hash"] == found["hash"]);
    // A search that is given the file finds the same, and says what MindSpore does with it.
    const Words load = {"--set", "parallel.strategy_ckpt_config.load_file=" + file};
    CHECK(plan_json(config, load)["hash"] == found["hash"]);
    const Outcome told = planned("validate", config, load);
    CHECK(told.exit_code == 0);
    CHECK(contains(told.err, "warning[" + file_code + "]") == keys.empty());
  }
}

TEST_CASE("a strategy file that is by tokens alone leaves the ranks open") {
  const TempDir dir;
  const std::string file = dir / "s.json";
  const std::string spread = dir.write(
      "a.yaml", model() +
                    "parallel: {parallel_mode: auto_parallel, search_mode: sharding_propagation, "
                    "tensor_parallel: 2, operator_splits: {attention: tokens}}\n");
  plan_json(spread, {"--set", "parallel.strategy_ckpt_config.save_file=" + file});
  const std::string config = dir.write("b.yaml", model() + mode);
  const Words load = {"--set", "parallel.strategy_ckpt_config.load_file=" + file};
  const Outcome refused = planned("validate", config, load);
  CHECK(refused.exit_code == exits::invalid);
  CHECK(contains(refused.err, "all its operators are split by tokens"));
  CHECK(planned("validate", config, {load[0], load[1], "--set", "parallel.tensor_parallel=2"})
            .exit_code == 0);
}

TEST_CASE("a strategy file for other ranks is refused with its arithmetic") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", model() + mode);
  const std::string file = dir / "s.json";
  plan_json(config, {"--set", "parallel.strategy_ckpt_config.save_file=" + file});
  const Outcome refused = trainctl({"validate", "--config", config, "--world-size", "8", "--set",
                                    "parallel.strategy_ckpt_config.load_file=" + file, "--set",
                                    "train.global_batch_size=8"});
  INFO(refused.out << refused.err);
  CHECK(refused.exit_code == exits::invalid);
  CHECK(contains(refused.err, "error[strategy-operators]"));
  CHECK(contains(refused.err, "are not the 8 ranks of a stage"));
}

TEST_CASE("a run keeps the layout that was found, resumes with it, and refuses a stale one") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", model() + mode);
  const std::string run = dir / "run";
  const Outcome first = train_four(config, run, {"--stop-after", "2"});
  INFO(first.out << first.err);
  REQUIRE(first.exit_code == 0);
  CHECK(contains(first.err + first.out, "auto_parallel: recursive_programming over 4 ranks"));
  const std::string kept = read_file(run + "/layout.yaml");
  CHECK(contains(kept, "tensor_parallel: 2"));
  const Words here = {"--set", "output.dir=" + run};

  const std::string hash = plan_json(config)["hash"];
  CHECK(plan_json(config, here)["hash"] == hash);
  const Outcome changed =
      planned("validate", config, {"--set", "output.dir=" + run, "--set", "model.vocab_size=512"});
  CHECK(changed.exit_code == exits::invalid);
  CHECK(contains(changed.err, "error[" + stale_code + "]"));
  CHECK(contains(changed.err, "the search read model.vocab_size: 256, and it is 512 now"));
  const Outcome other =
      trainctl({"validate", "--config", config, "--world-size", "2", "--set", "output.dir=" + run});
  CHECK(other.exit_code == 0);
  CHECK(contains(other.out, "is for 4 ranks; searched again for 2"));

  std::string edited = kept;
  edited.replace(edited.find("tensor_parallel: 2"), 18, "tensor_parallel: 4");
  std::ofstream(run + "/layout.yaml") << edited;
  const Outcome stale = train_four(config, run);
  CHECK(stale.exit_code == exits::invalid);
  CHECK(contains(stale.err, "its digest is another"));
  const Outcome again = train_four(config, run, {"--search-again"});
  INFO(again.out << again.err);
  CHECK(again.exit_code == 0);
  CHECK(read_file(run + "/layout.yaml") == kept);

  const std::string whole = dir / "whole";
  REQUIRE(train_four(config, whole).exit_code == 0);
  CHECK(repeatable_metrics(run) == repeatable_metrics(whole));
}

TEST_CASE("a search by seconds is shown, kept and taken again") {
  const TempDir dir;
  const std::string config = dir.write(
      "a.yaml", model() +
                    "parallel: {parallel_mode: auto_parallel, search_mode: dynamic_programming}\n" +
                    "cluster: {device: cpu-avx2}\n");
  const Outcome table = planned("plan", config, {"--explain"});
  INFO(table.out << table.err);
  CHECK(table.exit_code == 0);
  CHECK(contains(table.out, "search  dynamic_programming over 4 ranks"));
  CHECK(contains(table.out, "no other layout is faster"));
  CHECK(contains(table.out, "tensor_parallel "));
  CHECK(contains(table.out, " instead of "));
  const Outcome limited = planned(
      "validate", config, {"--set", "cluster.device_memory=16", "--set", "parallel.device=cpu"});
  CHECK(limited.exit_code == 0);
  CHECK_FALSE(contains(limited.err, "no-effect"));
  const nlohmann::json found = plan_json(config);
  const nlohmann::json& seconds = found["search"]["by_seconds"];
  CHECK(seconds["seconds"] == found["time"]["step_seconds"]);
  CHECK(seconds["others"].size() >= 1);
  const std::string run = dir / "run";
  const Outcome trained = train_four(config, run, {"--stop-after", "1"});
  INFO(trained.out << trained.err);
  REQUIRE(trained.exit_code == 0);
  CHECK(contains(trained.err + trained.out, "auto_parallel: dynamic_programming over 4 ranks"));
  const Words here = {"--set", "output.dir=" + run};
  const nlohmann::json taken = plan_json(config, here);
  CHECK(taken["hash"] == found["hash"]);
  CHECK_FALSE(taken["search"].contains("by_seconds"));  // nothing was searched
  const Outcome stale =
      planned("validate", config, {here[0], here[1], "--set", "precision.compute=bf16"});
  CHECK(stale.exit_code == exits::invalid);
  CHECK(contains(stale.err, "the search read precision.compute: fp32, and it is bf16 now"));
  const Outcome reported =
      planned("validate", config, {here[0], here[1], "--set", "log.max_attention_logit=true"});
  CHECK(contains(reported.err, "the search read log.max_attention_logit: false, and it is true"));
}

namespace {

/// Runs `words` on two ranks over MPI; one of them has a memory in which no layout fits.
Outcome on_two_ranks(const Words& words, int rank_without_memory) {
  const Words little = {"--set", "cluster.device_memory=0.0001"};
  Words all = mpirun_words(1);
  const std::string program = all.back();
  for (int rank = 0; rank < 2; ++rank) {
    if (rank > 0) all.insert(all.end(), {":", "-n", "1", program});
    all.insert(all.end(), words.begin(), words.end());
    if (rank == rank_without_memory) all.insert(all.end(), little.begin(), little.end());
  }
  return run_program("mpirun", all);
}

}  // namespace

TEST_CASE("over MPI the first rank alone searches, and the other takes its answer") {
  const TempDir dir;
  const std::string config = dir.write(
      "a.yaml", model() +
                    "parallel: {parallel_mode: auto_parallel, search_mode: dynamic_programming}\n" +
                    "cluster: {device: cpu-avx2}\n");
  const Words train = train_words(config, dir / "run", {"--stop-after", "1"});
  // A search of the second rank would find nothing; it only notices that its file is another one.
  const Outcome taken = on_two_ranks(train, 1);
  INFO(taken.out << taken.err);
  CHECK(contains(taken.err, "rank 1 made another plan than rank 0"));
  CHECK_FALSE(contains(taken.err, "search-space-empty"));
  const Outcome refused = on_two_ranks(train, 0);
  INFO(refused.out << refused.err);
  CHECK(refused.exit_code != 0);
  CHECK(contains(refused.err, "search-space-empty"));
}
