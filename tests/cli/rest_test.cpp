// Runs that go on with another batch, another number of ranks, another sequence length or other
// data: they end at what they were asked for, and read what comes next.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "catch.h"
#include "manifest_hash.h"
#include "sessions.h"
#include "thorough.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A Megatron pair with the tokens first, first + 1, ..., as one document.
void write_tokens(const TempDir& dir, const std::string& name, int first, int count) {
  std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), static_cast<std::uint16_t>(first));
  std::ofstream(dir / (name + ".bin"), std::ios::binary)
      .write(reinterpret_cast<const char*>(tokens.data()),
             static_cast<std::streamsize>(2 * tokens.size()));
  std::string index("MMIDIDX\0\0", 9);
  const auto add = [&](auto value) {
    std::array<char, sizeof value> bytes{};
    std::memcpy(bytes.data(), &value, sizeof value);
    index.append(bytes.data(), bytes.size());
  };
  add(std::uint64_t{1});
  add(std::uint8_t{8});
  add(std::uint64_t{1});
  add(std::uint64_t{2});
  add(static_cast<std::int32_t>(count));
  add(std::int64_t{0});
  add(std::int64_t{0});
  add(std::int64_t{1});
  std::ofstream(dir / (name + ".idx"), std::ios::binary) << index;
}

/// Only the embedding's rows of the tokens that a step reads change in it.
std::string config_of(const TempDir& dir, const std::string& train,
                      const std::string& data = ", shuffle: false",
                      const std::string& rate =
                          "style: linear, max_lr: 0.02, init_lr: 0.005, "
                          "warmup_ratio: 0.25") {
  return dir.write(
      "a.yaml",
      "model: {family: llama, num_layers: 1, hidden_size: 8, num_attention_heads: 1,\n"
      "        seq_length: 16, vocab_size: 2100, ffn_hidden_size: 8}\n"
      "data: {train: [{path: " +
          (dir / "a") + ", weight: 1}, {path: " + (dir / "b") + ", weight: 1}]" + data +
          "}\ntrain: {" + train +
          "}\noptimizer: {type: sgd, momentum: 0, weight_decay: 0, clip_grad_norm: 0}\n"
          "lr_schedule: {" +
          rate +
          "}\n"
          "output: {save_weights: false}\ncheckpoint: {every: 1, keep: 0}\n");
}

std::vector<float> embedding(const fs::path& checkpoint) {
  const Json manifest = Json::parse(read_file(checkpoint / "manifest.json"))["manifest"];
  for (const Json& tensor : manifest["tensors"]) {
    if (tensor["name"] != "embedding.token.weight" || tensor["value"] != "parameters") continue;
    const std::size_t columns = tensor["shape"][1];
    std::vector<float> values(tensor["shape"][0].get<std::size_t>() * columns);
    for (const Json& piece : tensor["pieces"]) {
      const std::string bytes =
          read_file(checkpoint /
                    manifest["files"][piece["file"].get<std::size_t>()]["name"].get<std::string>());
      const std::size_t first = piece["begin"][0].get<std::size_t>() * columns;
      const std::size_t count = piece["extent"][0].get<std::size_t>() * columns;
      std::memcpy(values.data() + first, bytes.data() + piece["offset"].get<std::size_t>(),
                  count * sizeof(float));
    }
    return values;
  }
  FAIL("no embedding in " << checkpoint);
  return {};
}

/// The tokens that each step after the first read, by what it changed.
std::vector<std::set<int>> tokens_read(const std::string& run) {
  std::vector<std::set<int>> read;
  std::vector<float> before;
  for (const std::string& name : checkpoints_of(run)) {
    const std::vector<float> now = embedding(run + "/checkpoints/" + name);
    if (!before.empty()) {
      read.emplace_back();
      for (std::size_t i = 0; i < now.size(); ++i) {
        if (now[i] != before[i]) read.back().insert(static_cast<int>(i / 8));
      }
    }
    before = now;
  }
  return read;
}

Outcome train(const std::string& config, const std::string& run, const Words& options,
              const Words& more = {}) {
  const Outcome outcome = trainctl(command(config, run, set(options, more)));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome;
}

struct Change {
  const char* name;
  Words options;
  Words more;
  std::int64_t batch;
  std::int64_t length;
};

/// As an earlier version wrote it.
void remove_from_manifest(const fs::path& checkpoint, const Words& keys) {
  auto document = nlohmann::ordered_json::parse(read_file(checkpoint / "manifest.json"));
  for (const std::string& key : keys) REQUIRE(document["manifest"].erase(key) == 1);
  document["xxh3"] = hash_of_text(document["manifest"].dump());
  std::ofstream(checkpoint / "manifest.json") << document.dump(1) << "\n";
}

/// The rate of a linear decay to 0 over `end` steps after `warmup` ones.
double linear_rate(double at, double warmup, double end) {
  if (at <= warmup && warmup > 0) return 0.005 + 0.015 * at / warmup;
  return 0.02 * (1 - (at - warmup) / (end - warmup));
}

/// The tokens that the steps after the first must have read of two sources, each in its own order
/// and with half of each step's positions: from `positions` of every step alone.
std::vector<std::set<int>> next_tokens(const std::vector<Json>& lines) {
  std::vector<std::set<int>> expected;
  std::int64_t before = 0;
  for (const Json& line : lines) {
    const std::int64_t after = line["tokens"].get<std::int64_t>() / 2;
    std::set<int> tokens;
    for (std::int64_t i = before; i < after; ++i) {
      tokens.insert(static_cast<int>(i % 512));
      tokens.insert(static_cast<int>(1000 + i % 512));
    }
    if (before > 0) expected.push_back(std::move(tokens));
    before = after;
  }
  return expected;
}

Json last_manifest(const std::string& run) {
  const std::string folder = run + "/checkpoints/" + checkpoints_of(run).back();
  return Json::parse(read_file(folder + "/manifest.json"))["manifest"];
}

}  // namespace

TEST_CASE("a run ends at the tokens or epochs that it was asked for, whatever its batch",
          "[rest]") {
  // Two epochs of two sources with 32 windows of 16: 32 steps of 4 sequences, 8 of them warm-up.
  constexpr std::int64_t sequences = 128;
  const std::vector<Change> changes = {
      {"a greater batch", {"train.global_batch_size=8"}, {}, 8, 16},
      {"a smaller batch", {"train.global_batch_size=2"}, {}, 2, 16},
      {"a batch that does not divide", {"train.global_batch_size=12"}, {}, 12, 16},
      {"smaller micro-batches", {"train.micro_batch_size=1"}, {}, 4, 16},
      {"two ranks", {}, {"--local-ranks", "2"}, 4, 16},
      {"longer sequences", {"model.seq_length=32"}, {}, 4, 32},
      {"shorter sequences", {"model.seq_length=8"}, {}, 4, 8},
      {"a ramp", {"train.rampup_batch_size=[4, 4, 60]", "train.global_batch_size=8"}, {}, 8, 16}};
  struct Place {
    const char* name;
    std::int64_t steps;
  };
  const Place places[] = {{"inside an epoch", 9}, {"at its end", 16}, {"during the warm-up", 3}};
  int number = 0;
  for (const Change& change : changes) {
    for (const Place& place : places) {
      for (const bool by_tokens : {true, false}) {
        const int of_all = number++;
        if (!thorough() && of_all % 6 != of_all / 6 % 6) continue;
        CAPTURE(change.name, place.name, by_tokens);
        const TempDir dir;
        write_tokens(dir, "a", 0, 513);
        write_tokens(dir, "b", 1000, 513);
        const std::string length = by_tokens ? "tokens: 2048" : "epochs: 2";
        const std::string config = config_of(dir, length + ", global_batch_size: 4");
        const std::string run = dir / "run";
        train(config, run, {}, {"--stop-after", std::to_string(place.steps)});
        train(config, run, change.options, change.more);
        const auto lines = metrics_of(run);

        std::int64_t rest = 0;
        std::int64_t done = place.steps * 4;  // sequences of 16
        while (done < sequences) {
          const bool small = std::string(change.name) == "a ramp" && done < 60;
          done += (small ? 4 : change.batch) * change.length / 16;
          ++rest;
        }
        REQUIRE(static_cast<std::int64_t>(lines.size()) == place.steps + rest);
        CHECK(lines.back()["tokens"] == done * 16);
        CHECK(tokens_read(run) == next_tokens(lines));
        // The rest of the rate's schedule is as long as the rest of the run.
        const double pace = static_cast<double>(32 - place.steps) / static_cast<double>(rest);
        for (std::int64_t i = 0; i < rest; ++i) {
          const double at = static_cast<double>(place.steps) + pace * static_cast<double>(i);
          CHECK(lines[static_cast<std::size_t>(place.steps + i)]["lr"].get<double>() ==
                Approx(linear_rate(at, 8, 32)));
        }
        CHECK(contains(trainctl(command(config, run, set(change.options, change.more))).err,
                       "is finished"));
      }
    }
  }
}

TEST_CASE("with other sources or weights, each source continues where it was, to the end asked for",
          "[rest]") {
  constexpr int windows = 32;  // of each source
  const auto first_of = [](char name) { return name == 'a' ? 0 : name == 'b' ? 600 : 1200; };
  struct Blend {
    const char* name;
    std::vector<std::pair<char, int>> sources;  // with their weights
  };
  const std::vector<Blend> blends = {{"other weights", {{'a', 1}, {'b', 3}}},
                                     {"a source more", {{'a', 1}, {'b', 1}, {'c', 2}}},
                                     {"a source less", {{'b', 1}}},
                                     {"another order", {{'b', 1}, {'a', 1}}},
                                     {"another source", {{'c', 1}, {'a', 2}}}};
  int number = 0;
  for (const Blend& blend : blends) {
    for (const int place : {9, 16, 3}) {  // inside an epoch, at its end, during the warm-up
      for (const bool by_tokens : {true, false}) {
        const int of_all = number++;
        if (!thorough() && of_all % 13 != 0) continue;
        CAPTURE(blend.name, place, by_tokens);
        const TempDir dir;
        for (const char name : {'a', 'b', 'c'}) {
          write_tokens(dir, {name}, first_of(name), 16 * windows + 1);
        }
        const std::string length = by_tokens ? "tokens: 2048" : "epochs: 2";
        const std::string config = config_of(dir, length + ", global_batch_size: 4");
        train(config, dir / "run", {}, {"--stop-after", std::to_string(place)});
        std::string list;
        double weights = 0;
        for (const auto& [name, weight] : blend.sources) {
          list += std::string(list.empty() ? "" : ", ") + "{path: " + (dir / std::string(1, name)) +
                  ", weight: " + std::to_string(weight) + "}";
          weights += weight;
        }
        std::string other = read_file(config);
        const std::size_t begin = other.find("train: [") + 8;
        other.replace(begin, other.find(']', begin) - begin, list);
        train(dir.write("b.yaml", other), dir / "run", {});

        std::map<char, int> read{{'a', 2 * place}, {'b', 2 * place}, {'c', 0}};  // windows of each
        int left = 128 - 4 * place;
        if (!by_tokens) {
          left = 0;
          for (const auto& source : blend.sources) left += 2 * windows - read[source.first];
        }
        const int rest = (left + 3) / 4;
        const auto lines = metrics_of(dir / "run");
        REQUIRE(static_cast<int>(lines.size()) == place + rest);
        const double pace = static_cast<double>(32 - place) / rest;
        const auto tokens = tokens_read(dir / "run");
        std::map<char, int> since;
        for (int step = place; step < place + rest; ++step) {
          CHECK(lines[static_cast<std::size_t>(step)]["lr"].get<double>() ==
                Approx(linear_rate(place + pace * (step - place), 8, 32)));
          const std::set<int>& seen = tokens[static_cast<std::size_t>(step - 1)];
          std::set<int> expected;
          int samples = 0;
          for (const auto& [name, weight] : blend.sources) {
            const int first = first_of(name);
            const auto count =
                std::distance(seen.lower_bound(first), seen.lower_bound(first + 16 * windows));
            const int now = static_cast<int>(count) / 16;
            for (int i = 16 * read[name]; i < 16 * (read[name] + now); ++i) {
              expected.insert(first + i % (16 * windows));
            }
            read[name] += now;
            since[name] += now;
            samples += now;
            CHECK(std::abs(since[name] - 4 * (step + 1 - place) * weight / weights) <= 1);
          }
          CHECK(seen == expected);
          CHECK(samples == 4);
        }
      }
    }
  }
}

TEST_CASE("a changed batch that stays changes nothing more, bit for bit", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  const std::string config =
      config_of(dir, "tokens: 2048, global_batch_size: 4", ", shuffle: true");
  const Words six{"train.global_batch_size=6"};
  for (const char* run : {"whole", "parts"}) train(config, dir / run, {}, {"--stop-after", "5"});
  train(config, dir / "whole", six);
  for (int session = 0; session < 3; ++session) {
    train(config, dir / "parts", six, {"--stop-after", "4"});
  }
  train(config, dir / "parts", six);
  CHECK(repeatable_metrics(dir / "parts") == repeatable_metrics(dir / "whole"));
  CHECK(metrics_of(dir / "whole").size() == 5 + 18);  // ceil((2048 - 320) / 96)
  // More tokens, at the pace that it has.
  const Json before = last_manifest(dir / "whole")["length"]["schedule"];
  train(config, dir / "whole", {"train.global_batch_size=6", "train.tokens=4096"});
  const Json after = last_manifest(dir / "whole")["length"];
  CHECK(metrics_of(dir / "whole").size() == 5 + 40);
  CHECK(after["tokens"] == 4096);
  CHECK(after["schedule"]["per_update"] == before["per_update"]);
  CHECK(after["schedule"]["end"] == 32 + 33);  // 22 steps of 27 / 18
  // The run's own configuration asks for the same.
  CHECK(contains(read_file(dir / "whole/config.yaml"), "  tokens: 4096"));
  CHECK(contains(trainctl({"train", dir / "whole/config.yaml"}).err, "is finished"));
}

TEST_CASE("with other weights, each source continues at its own next window", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  const std::string config = config_of(dir, "steps: 100, global_batch_size: 1");
  std::string other = read_file(config);
  other.replace(other.rfind("weight: 1}"), 10, "weight: 3}");
  train(config, dir / "run", {}, {"--stop-after", "10"});
  train(dir.write("b.yaml", other), dir / "run", {}, {"--stop-after", "8"});
  std::map<int, std::vector<int>> windows;  // of each source, in order
  for (const std::set<int>& tokens : tokens_read(dir / "run")) {
    REQUIRE(tokens.size() == 16);
    windows[*tokens.begin() / 1000].push_back(*tokens.begin() % 1000 / 16);
  }
  windows[0].insert(windows[0].begin(), 0);  // the first step's
  std::vector<int> expected(7);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(windows[0] == expected);
  expected.resize(11);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(windows[1] == expected);
}

TEST_CASE("a source that has grown ends the start, unless that is allowed", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  const std::string config = config_of(dir, "steps: 100, global_batch_size: 2");
  train(config, dir / "run", {}, {"--stop-after", "4"});
  const std::string before = read_file(dir / "run/metrics.jsonl");
  write_tokens(dir, "b", 1000, 900);
  for (const Words& more : {Words{"--stop-after", "4"}, Words{"--local-ranks", "2"}}) {
    const Outcome refused = trainctl(command(config, dir / "run", more));
    INFO(refused.err);
    CHECK(refused.exit_code == exits::bad_data);
    CHECK(contains(refused.err, "data.train: " + (dir / "b") +
                                    " is not what the checkpoint's run read: 1,800 bytes"));
  }
  CHECK(contains(read_file(dir / "run/metrics.jsonl"), before.substr(0, before.rfind("{\"end\""))));
  const Outcome allowed = train(config, dir / "run", {"data.changed=allow"}, {"--stop-after", "4"});
  CHECK(contains(allowed.err, "a new epoch of it begins"));
  const Json sources = last_manifest(dir / "run")["data"]["sources"];
  CHECK(sources[0]["windows"] == 8);
  CHECK(sources[1]["windows"] == 4);
  CHECK(sources[1]["epoch"] == 1);
  // From now on that is the data.
  train(config, dir / "run", {}, {"--stop-after", "1"});
}

TEST_CASE("a warm-up in steps stays as long when the rest of a run has fewer steps", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  const std::string config =
      config_of(dir, "tokens: 2048, global_batch_size: 4", ", shuffle: false",
                "style: linear, max_lr: 0.02, init_lr: "
                "0.005, warmup_steps: 20");
  train(config, dir / "run", {}, {"--stop-after", "9"});
  // A new run of this batch would have 8 steps, fewer than the warm-up.
  const Outcome rest = train(config, dir / "run", {"train.global_batch_size=16"});
  CHECK_FALSE(contains(rest.err, "short-run"));
  const auto lines = metrics_of(dir / "run");
  REQUIRE(lines.size() == 9 + 6);  // ceil((2048 - 576) / 256)
  for (int i = 0; i < 6; ++i) {
    CHECK(lines[static_cast<std::size_t>(9 + i)]["lr"].get<double>() ==
          Approx(linear_rate(9 + 23.0 / 6 * i, 20, 32)));
  }
  const Outcome fresh = train(config, dir / "fresh", {"train.global_batch_size=16"});
  CHECK(contains(fresh.err, "short-run"));
}

TEST_CASE("validation data that has changed ends the start, unless that is allowed", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  write_tokens(dir, "held", 0, 200);
  const std::string path = dir / "held";
  const auto validated_on = [&](const std::string& name) {
    return config_of(dir, "steps: 100, global_batch_size: 2, validate_every: 2",
                     ", shuffle: false, validation: {path: " + (dir / name) + "}");
  };
  std::string config = validated_on("held");
  train(config, dir / "run", {"checkpoint.keep=1", "checkpoint.keep_best=true"},
        {"--stop-after", "4"});
  write_tokens(dir, "held", 1800, 200);  // of the same size, and harder
  const Outcome refused = trainctl(command(config, dir / "run", {"--stop-after", "4"}));
  INFO(refused.err);
  CHECK(refused.exit_code == exits::bad_data);
  CHECK(contains(refused.err, "data.validation.path: " + path +
                                  " is not what the checkpoint's run was validated on: 400 bytes"));
  const Outcome allowed = train(
      config, dir / "run", {"data.changed=allow", "checkpoint.keep=1", "checkpoint.keep_best=true"},
      {"--stop-after", "4"});
  CHECK(contains(allowed.err, "validation losses before and after do not compare"));
  // None of the checkpoints from before is kept as the best.
  for (const std::string& name : checkpoints_of(dir / "run")) CHECK(name > "step-00000004");
  train(config, dir / "run", {}, {"--stop-after", "1"});
  // Another path is another wish, and a file that was moved is the same.
  write_tokens(dir, "other", 3, 100);
  config = validated_on("other");
  train(config, dir / "run", {}, {"--stop-after", "1"});
}

TEST_CASE("another sequence length tells what is left out of an epoch", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  const std::string config = config_of(dir, "steps: 100, global_batch_size: 2", ", shuffle: true");
  train(config, dir / "run", {}, {"--stop-after", "4"});
  const Outcome more = train(config, dir / "run", {"model.seq_length=24"}, {"--stop-after", "1"});
  // 28 windows of 16 are left, 448 labels: 18 rows of 24.
  CHECK(contains(more.err, (dir / "a") + ": the last 16 labels of epoch 1 are left out"));
}

TEST_CASE("a run resumes from a checkpoint that keeps no lengths and no data", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  const std::string config =
      config_of(dir, "tokens: 2048, global_batch_size: 4", ", shuffle: true");
  for (const char* run : {"old", "whole"}) train(config, dir / run, {}, {"--stop-after", "9"});
  const fs::path checkpoint = dir / ("old/checkpoints/" + checkpoints_of(dir / "old").back());
  remove_from_manifest(checkpoint, {"length", "data"});
  const Outcome outcome = train(config, dir / "old", {});
  CHECK(contains(outcome.err, "the checkpoint does not say what its data was"));
  train(config, dir / "whole", {});
  CHECK(repeatable_metrics(dir / "old") == repeatable_metrics(dir / "whole"));
}

TEST_CASE("ranks of one process name the cause of an error in the data", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1800, 513);  // beyond 2099
  const std::string config = config_of(dir, "steps: 3, global_batch_size: 4");
  for (const char* ranks : {"1", "2", "4"}) {
    for (int again = 0; again < 3; ++again) {
      const Outcome outcome =
          trainctl(command(config, dir / "run", {"--local-ranks", ranks, "--overwrite"}));
      INFO(outcome.err);
      CHECK(outcome.exit_code == exits::bad_data);
      CHECK(contains(outcome.err, "the vocabulary of 2100 allows 0 to 2099"));
    }
  }
}

TEST_CASE("bad steps are skipped up to a limit", "[rest]") {
  const TempDir dir;
  write_tokens(dir, "a", 0, 513);
  write_tokens(dir, "b", 1000, 513);
  const std::string config =
      config_of(dir, "steps: 40, global_batch_size: 2", ", shuffle: false", "max_lr: 1.0e+30");
  const Words skip{"train.on_bad_loss=skip", "train.max_bad_steps=5"};
  const Outcome outcome = trainctl(command(config, dir / "run", set(skip)));
  INFO(outcome.err);
  CHECK(outcome.exit_code == exits::diverged);
  CHECK(contains(outcome.err, "train.max_bad_steps allows 5 in a row"));
  std::size_t skipped = 0;
  for (const Json& line : metrics_of(dir / "run")) skipped += line.contains("skipped") ? 1 : 0;
  CHECK(skipped == 5);
}
