// Strategy and group files through the built program: plan and train write them, validate reads
// them back and refuses what differs.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"

namespace {

namespace fs = std::filesystem;

const std::string load_key = "parallel.strategy_ckpt_config.load_file=";
const std::string save_key = "parallel.strategy_ckpt_config.save_file=";

using Words = std::vector<std::string>;

/// `command --config FILE`, four ranks and tp 2, with `settings` as --set options.
Outcome on_four(const std::string& command, const std::string& config, const Words& settings) {
  Words words = {command, "--config", config, "--world-size", "4"};
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  return trainctl(words);
}

std::string split_config() { return small_config() + "parallel: {tensor_parallel: 2}\n"; }

int mode_of(const std::string& file) {
  struct stat about {};
  REQUIRE(stat(file.c_str(), &about) == 0);
  return static_cast<int>(about.st_mode & 0777U);
}

/// The only diagnostic that validate has for `load_file`, besides what is not built yet.
nlohmann::json complaint(const std::string& config, const std::string& file, int exit_code) {
  const Outcome outcome = trainctl({"validate", "--config", config, "--world-size", "4", "--set",
                                    load_key + file, "--format", "json"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.exit_code == exit_code);
  const auto document = nlohmann::json::parse(outcome.out);
  std::vector<nlohmann::json> found;
  for (const auto& one : document["diagnostics"]) {
    if (one["code"] != "not-built") found.push_back(one);
  }
  REQUIRE(found.size() == 1);
  return found[0];
}

}  // namespace

TEST_CASE("plan writes a strategy file, validate and plan read it back") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  const std::string bare = on_four("plan", config, {}).out;
  for (const std::string name : {"new/folder/s.json", "s.ckpt"}) {
    const std::string file = dir / name;
    const Outcome saved = on_four("plan", config, {save_key + file});
    INFO(saved.err);
    CHECK(saved.exit_code == 0);
    CHECK(saved.err.empty());
    CHECK(saved.out.size() == bare.size());
    CHECK(mode_of(file) == 0600);
    for (const std::string command : {"validate", "plan"}) {
      const Outcome loaded = on_four(command, config, {load_key + file});
      CHECK(loaded.exit_code == 0);
      CHECK(!contains(loaded.err, "strategy"));
    }
  }
  const auto json = nlohmann::json::parse(read_file(dir / "new/folder/s.json"));
  const auto& layout = json["parallel_layout_item"]["layers.1.attention.q.weight"];
  CHECK(layout["dev_matrix"] == std::vector<int>{2, 2});
  CHECK(layout["tensor_map"] == std::vector<int>{0, -1});
  CHECK(layout["tensor_shape"] == std::vector<int>{16, 32});
  CHECK(json["current_stage"] == 1);
  CHECK_FALSE(json["parallel_layout_item"].contains("adam_m.final_norm.weight"));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir / "new/folder")) ++files;
  CHECK(files == 1);  // nothing temporary is left
}

TEST_CASE("validate writes nothing") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  CHECK(on_four("validate", config, {save_key + (dir / "s.json")}).exit_code == 0);
  CHECK_FALSE(fs::exists(dir / "s.json"));
}

TEST_CASE("a file for other sizes is refused where it is named") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  const std::string file = dir / "s.json";
  CHECK(on_four("plan", config, {save_key + file}).exit_code == 0);
  const std::string other =
      dir.write("b.yaml", small_config() + "parallel:\n  tensor_parallel: 4\n" +
                              "  strategy_ckpt_config:\n    load_file: " + file + "\n");
  const std::string text =
      "'embedding.token.weight' has dev_matrix [2,2], tensor_map [0,-1], "
      "tensor_shape [128,32] in " +
      file +
      ", but dev_matrix [4], tensor_map [0,-1], tensor_shape [64,32] in this "
      "plan; ";
  for (const std::string command : {"validate", "plan"}) {
    const Outcome outcome = on_four(command, other, {});
    INFO(outcome.err);
    CHECK(outcome.exit_code == exits::invalid);
    CHECK(contains(outcome.err, "b.yaml:9:16"));
    CHECK(contains(outcome.err, "strategy-differs"));
    CHECK(contains(outcome.err, text));
  }
  const nlohmann::json found = complaint(other, file, exits::invalid);
  CHECK(found["summary"].get<std::string>().starts_with(text));
  CHECK(found["summary"].get<std::string>().ends_with(" more differ"));
}

TEST_CASE("with semi_auto_parallel the file decides the splits of operators") {
  const TempDir dir;
  const std::string mode = "parallel.parallel_mode=semi_auto_parallel";
  const std::string config = dir.write("a.yaml", split_config());
  const auto splits_of = [](const Outcome& outcome) {
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return nlohmann::json::parse(outcome.out)["operator_splits"];
  };
  const auto plan_json = [&](Words settings) {
    settings.push_back(mode);
    Words words = {"plan", "--config", config, "--world-size", "4", "--format", "json"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return trainctl(words);
  };
  for (const std::string name : {"s.json", "s.ckpt"}) {
    const std::string file = dir / name;
    const auto written =
        splits_of(plan_json({"parallel.operator_splits.attention=tokens",
                             "parallel.operator_splits.feed_forward=whole", save_key + file}));
    CHECK(written["attention"] == "tokens");
    CHECK(splits_of(plan_json({load_key + file})) == written);
    CHECK(splits_of(plan_json({}))["attention"] == "features");
    // Other modes only compare it.
    const Outcome other = on_four("plan", config, {load_key + file});
    CHECK(other.exit_code == exits::invalid);
    CHECK(contains(other.err, "strategy-differs"));
  }
  const std::string file = dir / "s.json";
  const Outcome refused = on_four(
      "validate", config, {mode, load_key + file, "parallel.operator_splits.attention=whole"});
  CHECK(refused.exit_code == exits::invalid);
  CHECK(contains(refused.err, "strategy-operators"));
  CHECK(contains(refused.err, "it contradicts " + file + ":"));
}

TEST_CASE("files that cannot be read are named with the reason") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  const std::string huge = dir.write("huge.json", "");
  fs::resize_file(huge, 100 << 20);
  const std::pair<std::string, std::string> rows[] = {
      {dir / "absent.json", "no such file"},
      {dir.path().string(), "expected a regular file"},
      {dir.write("empty.json", ""), "is empty"},
      {dir.write("text.ckpt", "hello"), "expected a protobuf strategy file"},
      {dir.write("bare.json", "{\"current_stage\": 1}"), "has no parameter layouts"},
      {huge, "has 104857600 bytes, more than the 67108864 that a strategy file may have"},
  };
  for (const auto& [file, why] : rows) {
    const nlohmann::json found = complaint(config, file, exits::invalid);
    CHECK(found["code"] == "strategy-file");
    CHECK(found["summary"] == file + ": " + why);
  }
}

TEST_CASE("parameters that the model lacks are one warning") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  const std::string file = dir / "s.json";
  CHECK(on_four("plan", config, {save_key + file}).exit_code == 0);
  auto json = nlohmann::json::parse(read_file(file));
  json["parallel_layout_item"]["lora.weight"] = json["parallel_layout_item"]["final_norm.weight"];
  const nlohmann::json found = complaint(config, dir.write("more.json", json.dump()), 0);
  CHECK(found["code"] == "strategy-unknown");
  CHECK(found["summary"] ==
        (dir / "more.json") + " has 1 parameter that this model does not have: 'lora.weight'");
}

TEST_CASE("states are written when asked for, and read back without messages") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  const std::string file = dir / "s.json";
  const std::string all = "parallel.strategy_ckpt_config.only_trainable_params=false";
  CHECK(on_four("plan", config, {save_key + file, all}).exit_code == 0);
  const auto json = nlohmann::json::parse(read_file(file))["parallel_layout_item"];
  CHECK(json.contains("adam_v.layers.0.mlp.up.weight"));
  CHECK(json.size() % 3 == 0);
  CHECK(!contains(on_four("validate", config, {load_key + file}).err, "strategy"));
}

TEST_CASE("a file that cannot be written ends plan with 74 and leaves nothing") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  const std::string blocked = dir.write("file", "") + "/s.json";
  const Outcome folder = on_four("plan", config, {save_key + blocked});
  CHECK(folder.exit_code == exits::io);
  CHECK(contains(folder.err, "cannot create the folder " + (dir / "file")));
  fs::create_directory(dir / "taken.json");
  const Outcome taken = on_four("plan", config, {save_key + (dir / "taken.json")});
  CHECK(taken.exit_code == exits::io);
  CHECK(contains(taken.err, "cannot write " + (dir / "taken.json") + ": Is a directory"));
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    CHECK_FALSE(contains(entry.path().filename().string(), "taken.json."));
  }
}

TEST_CASE("the group file is that of the rank shown") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", split_config());
  const auto groups_of = [&](const std::string& name, const Words& more) {
    Words words = {"plan",
                   "--config",
                   config,
                   "--world-size",
                   "4",
                   "--set",
                   "parallel.group_ckpt_save_file=" + (dir / name)};
    words.insert(words.end(), more.begin(), more.end());
    CHECK(trainctl(words).exit_code == 0);
    CHECK(mode_of(dir / name) == 0600);
    return read_file(dir / name);
  };
  const std::string first = groups_of("a.pb", {});
  CHECK(first == groups_of("b.pb", {"--rank", "0"}));
  CHECK(first != groups_of("c.pb", {"--rank", "1"}));
  // tp 2, dp 2: rank 0's parameters are also on rank 2.
  CHECK(first.ends_with(std::string("\x12\x04\x08\x00\x08\x02", 6)));
}

TEST_CASE("train writes before its first step: rank 0 the strategy, each rank its groups") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const std::string file = dir / "s.json";
  Words words = {"train",
                 "--config",
                 config,
                 "--steps",
                 "1",
                 "--local-ranks",
                 "2",
                 "--output",
                 dir / "run",
                 "--set",
                 "parallel.group_ckpt_save_file=" + (dir / "g.pb")};
  Words saving = words;
  saving.insert(saving.end(), {"--set", save_key + file});
  const Outcome outcome = trainctl(saving);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  const auto json = nlohmann::json::parse(read_file(file));
  CHECK(json["parallel_layout_item"]["final_norm.weight"]["dev_matrix"] == std::vector<int>{2});
  CHECK(fs::exists(dir / "g-rank0.pb"));
  CHECK(fs::exists(dir / "g-rank1.pb"));
  CHECK_FALSE(fs::exists(dir / "g.pb"));

  Words other = {"train",    "--config",    config,  "--steps",      "1",
                 "--output", dir / "other", "--set", load_key + file};
  const Outcome refused = trainctl(other);
  INFO(refused.err);
  CHECK(refused.exit_code == exits::invalid);
  CHECK(
      contains(refused.err, "'embedding.token.weight' has dev_matrix [2], tensor_map [-1,-1] in " +
                                file + ", but dev_matrix [1], tensor_map [-1,-1] in this plan"));
  CHECK_FALSE(fs::exists(dir / "other"));
}

TEST_CASE("train writes nothing for a configuration that it refuses") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config() + "parallel: {data_parallel: 3}\n");
  const Outcome outcome = trainctl({"train", "--config", config, "--local-ranks", "4", "--output",
                                    dir / "run", "--set", save_key + (dir / "s.json")});
  CHECK(outcome.exit_code == exits::invalid);
  CHECK_FALSE(fs::exists(dir / "s.json"));
}
