// The length of a run in tokens, epochs or steps, a warm-up as a ratio, a batch from its parts.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"

namespace {

/// small_config() with another train and lr_schedule section.
std::string config_with(const std::string& train, const std::string& rate = "max_lr: 1.0e-3") {
  std::string text = small_config();
  text.resize(text.find("train: {steps"));
  return text + "train: {" + train + "}\nlr_schedule: {" + rate + "}\n";
}

Outcome validated(const std::string& text, const std::vector<std::string>& more = {}) {
  const TempDir dir;
  std::vector<std::string> words = {"validate", dir.write("a.yaml", text)};
  words.insert(words.end(), more.begin(), more.end());
  return trainctl(words);
}

/// The warm-up and steps in effect, by what a rule about them says.
std::string plan_of(const std::string& text, const std::vector<std::string>& more = {}) {
  const TempDir dir;
  std::vector<std::string> words = {
      "plan", dir.write("a.yaml", text), "--lr-at", "0,9,10,19", "--format", "json"};
  words.insert(words.end(), more.begin(), more.end());
  return trainctl(words).out;
}

}  // namespace

TEST_CASE("tokens give the steps, or must agree with them") {
  // 8 sequences of 16 tokens: 128 per step.
  const Outcome ten = validated(config_with("tokens: 1280, global_batch_size: 8"));
  INFO(ten.err);
  CHECK(ten.exit_code == 0);
  CHECK(validated(config_with("tokens: 1280, steps: 10, global_batch_size: 8")).exit_code == 0);
  CHECK(validated(config_with("tokens: 1279, steps: 10, global_batch_size: 8")).exit_code == 0);
  const Outcome differs = validated(config_with("tokens: 1300, steps: 10, global_batch_size: 8"));
  CHECK(differs.exit_code == exits::invalid);
  CHECK(contains(differs.err, "a.yaml:4:30: error[length-differs]"));
  CHECK(contains(differs.err,
                 "contradicts train.tokens (1300) / (global_batch_size (8) x seq_length (16) = 128 "
                 "per step), rounded up, = 11 in "));
  CHECK(contains(differs.err, "a.yaml:4:17"));
  CHECK(contains(differs.err, "remove steps or tokens, or set steps to 11"));
  CHECK(contains(trainctl({"explain", "length-differs"}).out, "train.tokens"));
  // --set wins over the file.
  CHECK(validated(config_with("tokens: 1300, global_batch_size: 8"), {"--set", "train.steps=3"})
            .exit_code == 0);
  CHECK(plan_of(config_with("tokens: 2560, global_batch_size: 8", "style: linear, max_lr: 1.0")) ==
        plan_of(config_with("steps: 20, global_batch_size: 8", "style: linear, max_lr: 1.0")));
  CHECK(validated(config_with("global_batch_size: 8")).exit_code == exits::invalid);
}

TEST_CASE("warmup_ratio is a part of the steps") {
  const std::string train = "steps: 20, global_batch_size: 8";
  const auto both = [&](const std::string& a, const std::string& b) {
    return plan_of(config_with(train, "style: linear, max_lr: 1.0, " + a)) ==
           plan_of(config_with(train, "style: linear, max_lr: 1.0, " + b));
  };
  CHECK(both("warmup_ratio: 0.5", "warmup_steps: 10"));
  CHECK(both("warmup_ratio: 0.46", "warmup_steps: 10"));
  CHECK_FALSE(both("warmup_ratio: 0.5", "warmup_steps: 9"));
  const Outcome differs =
      validated(config_with(train, "max_lr: 1.0, warmup_ratio: 0.5, warmup_steps: 9"));
  CHECK(differs.exit_code == exits::invalid);
  CHECK(
      contains(differs.err, "contradicts lr_schedule.warmup_ratio (0.5) x train.steps (20) = 10"));
}

TEST_CASE("a batch from its parts, under the name that people bring") {
  const Outcome made =
      validated(config_with("steps: 4, micro_batch_size: 2, gradient_accumulation_steps: 3"),
                {"--world-size", "4"});
  INFO(made.err);
  CHECK(made.exit_code == 0);
  CHECK(contains(made.out, "batch of 24 sequences"));
  const Outcome wrong =
      validated(config_with("steps: 4, global_batch_size: 20, micro_batch_size: 2, "
                            "gradient_accumulation_steps: 3"),
                {"--world-size", "4"});
  CHECK(wrong.exit_code == exits::invalid);
  CHECK(contains(wrong.err,
                 "global_batch_size (20) must equal micro_batch_size (2) x "
                 "gradient_accumulation_steps (3) x data_parallel (4) = 24"));
  CHECK(validated(config_with("steps: 4, micro_batch_num: 2, global_batch_size: 8, "
                              "gradient_accumulation_steps: 3"))
            .exit_code == exits::invalid);
}

TEST_CASE("epochs count the training data") {
  const TempDir dir;
  const std::string text = dir.write("a.txt", std::string(1 + 16 * 40, 'a'));
  const std::string config = dir.write("a.yaml", config_with("epochs: 2.5, global_batch_size: 8"));
  const std::vector<std::string> words = {"train",    config,     "--set", "data.train=" + text,
                                          "--output", dir / "run"};
  const Outcome trained = trainctl(words);
  INFO(trained.err);
  REQUIRE(trained.exit_code == 0);
  // 40 windows of 16 tokens, 2.5 times, 8 to a step: 12.5 steps.
  const std::string metrics = read_file(dir / "run/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') >= 13);
  // A session that resumes the run asks for the same.
  CHECK(contains(read_file(dir / "run/config.yaml"), "  epochs: 2.5"));
  CHECK(contains(read_file(dir / "run/config.yaml"),
                 "train.epochs (2.5) x 40 sequences in the training data / global_batch_size (8) = "
                 "13"));
  CHECK_FALSE(contains(read_file(dir / "run/config.yaml"), "\n  steps: "));
  const Outcome differs = trainctl({"validate", config, "--data", "--set", "data.train=" + text,
                                    "--set", "train.epochs=2", "--set", "train.steps=11"});
  CHECK(differs.exit_code == exits::invalid);
  CHECK(contains(differs.err,
                 "contradicts train.epochs (2) x 40 sequences in the training data / "
                 "global_batch_size (8) = 10"));
  CHECK(trainctl({"plan", config, "--set", "data.train=" + (dir / "none")}).exit_code == 0);
  const Outcome none =
      trainctl({"validate", config, "--data", "--set", "data.train=" + (dir / "none")});
  CHECK(none.exit_code == 66);
  CHECK(contains(none.err, ": data.train: no text file or folder " + (dir / "none")));
}

TEST_CASE("epochs read no data unless they are asked to, and tell that the steps are unknown") {
  const TempDir dir;
  const std::string text = dir.write("a.txt", std::string(1 + 16 * 40, 'a'));
  const std::string config = dir.write("a.yaml", config_with("epochs: 2.5, global_batch_size: 8"));
  const std::string cache = dir / "cache";
  const std::vector<std::string> sets = {"--set", "data.train=" + text, "--set",
                                         "data.cache_dir=" + cache};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), sets.begin(), sets.end());
    const Outcome outcome = trainctl(words);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
    return outcome;
  };
  const std::string unknown = "steps unknown: train.epochs counts them in the data";
  CHECK(contains(with({"validate", config}).out, unknown));
  CHECK(contains(with({"plan", config}).err, unknown));
  CHECK(nlohmann::json::parse(with({"plan", config, "--format", "json"}).out)["steps"].is_null());
  CHECK_FALSE(std::filesystem::exists(cache));
  const Outcome rates =
      trainctl({"plan", config, "--lr-at", "3", sets[0], sets[1], sets[2], sets[3]});
  CHECK(rates.exit_code == exits::invalid);
  CHECK(contains(rates.err, "let --data count it"));
  CHECK_FALSE(std::filesystem::exists(cache));
  const Outcome counted = with({"plan", config, "--data", "--format", "json"});
  CHECK(nlohmann::json::parse(counted.out)["steps"] == 13);
  CHECK(std::filesystem::exists(cache));
  CHECK_FALSE(contains(with({"validate", config, "--data"}).out, "unknown"));
}

TEST_CASE("a run that is shorter than its warm-up shortens it and says so") {
  const std::string train = "steps: 100, global_batch_size: 8";
  const std::string text = config_with(train, "style: cosine, max_lr: 1.0, warmup_steps: 100");
  const Outcome same = validated(text);
  INFO(same.err);
  CHECK(same.exit_code == 0);
  CHECK(contains(same.err,
                 "warning[short-run]: lr_schedule.warmup_steps: warmup_steps (100) is too long for "
                 "train.steps (100) and is shortened to 99"));
  CHECK(contains(same.err, "set warmup_steps to 99 or less"));
  const std::vector<std::string> short_run = {"--set", "train.steps=20"};
  const std::string as_short = plan_of(text, short_run);
  const auto rates = [](const std::string& plan) { return nlohmann::json::parse(plan)["lr"]; };
  CHECK(rates(as_short) == rates(plan_of(config_with("steps: 20, global_batch_size: 8",
                                                     "style: cosine, max_lr: 1.0, "
                                                     "warmup_steps: 19"))));
  CHECK(nlohmann::json::parse(as_short)["diagnostics"][0]["code"] == "short-run");
  CHECK(validated(text, {"--set", "train.steps=1"}).exit_code == 0);
  // The last phase too; and a schedule with a length of its own is not shortened.
  const Outcome last = validated(config_with(train, "style: WSD, max_lr: 1.0, wsd_decay_steps: 50"),
                                 {"--set", "train.steps=5"});
  CHECK(last.exit_code == 0);
  CHECK(contains(last.err, "wsd_decay_steps (50) is too long for train.steps (5)"));
  const std::string fixed = "style: cosine, max_lr: 1.0, warmup_steps: 50, decay_steps: 100";
  const Outcome own = validated(config_with(train, fixed), {"--set", "train.steps=5"});
  CHECK(own.exit_code == 0);
  CHECK(own.err.empty());  // the command line shortens the run, not the schedule
  CHECK(contains(validated(config_with("steps: 5, global_batch_size: 8", fixed)).err,
                 "decay-beyond-steps"));
  CHECK(
      validated(config_with(train, "style: cosine, max_lr: 1.0, warmup_steps: 50, decay_steps: 50"))
          .exit_code == exits::invalid);
}

TEST_CASE("epochs of data that is not given break no rule about steps") {
  std::string text = config_with("epochs: 2, global_batch_size: 8",
                                 "style: cosine, max_lr: 1.0e-3, warmup_ratio: 0.03");
  const std::size_t data = text.find("data:");
  text.erase(data, text.find('\n', data) - data);
  const Outcome refused = validated(text);
  INFO(refused.err);
  CHECK(contains(refused.err, "missing-key"));
  CHECK(contains(refused.err, "\n1 error\n"));
}

TEST_CASE("a run whose length is in tokens resumes when they grow, and migrate keeps the keys") {
  const TempDir dir;
  const std::string text =
      config_with("tokens: 512, micro_batch_size: 4, gradient_accumulation_steps: 2",
                  "style: cosine, max_lr: 1.0e-3, warmup_ratio: 0.25");
  const std::string config = dir.write("a.yaml", text);
  const auto train = [&](const std::string& file, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"train", file, "--output", dir / "run"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = trainctl(words);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome.err;
  };
  train(config, {"--stop-after", "3"});
  CHECK(contains(train(config), "resuming after step 3 from"));
  CHECK(contains(train(config), "is finished: it has 4 of 4 steps"));
  CHECK(contains(train(dir / "run/config.yaml"), "is finished: it has 4 of 4 steps"));
  CHECK(contains(train(config, {"--set", "train.tokens=768"}), "resuming after step 4 from"));
  CHECK(contains(read_file(dir / "run/config.yaml"), "  tokens: 768"));
  const Outcome migrated = trainctl({"migrate", config});
  CHECK(contains(migrated.out, "  tokens: 512\n"));
  CHECK(contains(migrated.out, "  warmup_ratio: 0.25\n"));
  CHECK(contains(migrated.out, "  micro_batch_num: 2\n"));
}
