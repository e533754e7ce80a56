// Runs whose batch grows: what they write, and that they go on in the middle of the ramp.
#include "catch.h"
#include "sessions.h"

namespace {

/// Batches of 2, 4, 6 and 8 sequences of 16 tokens.
const Words ramp = {"train.rampup_batch_size=[2, 2, 13]", "train.micro_batch_size=1",
                    "parallel.threads_per_rank=1"};

Words ramp_with(const Words& more, const Words& behind) {
  Words options = ramp;
  options.insert(options.end(), more.begin(), more.end());
  return set(options, behind);
}

}  // namespace

TEST_CASE("a run resumes in the middle of its ramp, bit for bit") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  for (const char* layout : {"parallel.pipeline_stages=2", "parallel.pipeline_stages=1"}) {
    const Words options = ramp_with({layout}, {"--local-ranks", "2", "--steps", "7"});
    const std::string whole = dir / (std::string("whole") + layout);
    const std::string parts = dir / (std::string("parts") + layout);
    REQUIRE(trainctl(command(config, whole, options)).exit_code == 0);
    Words some = options;
    some.insert(some.end(), {"--stop-after", "3"});
    for (int session = 0; session < 3; ++session) {
      const Outcome outcome = trainctl(command(config, parts, some));
      INFO(outcome.err);
      REQUIRE(outcome.exit_code == 0);
      CHECK(!contains(outcome.err, "warning"));
    }
    check_no_gap(parts, 7);
    CHECK(repeatable_metrics(parts) == repeatable_metrics(whole));
    CHECK(read_file(parts + "/model.safetensors") == read_file(whole + "/model.safetensors"));
    std::vector<std::int64_t> batches;
    std::int64_t tokens = 0;
    for (const auto& line : metrics_of(whole)) {
      batches.push_back(line["batch_size"]);
      tokens += 16 * batches.back();
      CHECK(line["tokens"] == tokens);
    }
    CHECK(batches == std::vector<std::int64_t>{2, 2, 2, 4, 6, 8, 8});
  }
}

TEST_CASE("plan shows the steps of a ramp, and tokens give their number") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const auto plan = [&](const Words& more, const Words& behind) {
    Words words{"plan", config};
    for (const std::string& word : ramp_with(more, behind)) words.push_back(word);
    const Outcome outcome = trainctl(words);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
    return outcome.out;
  };
  const std::string table = plan({"train.steps=7"}, {});
  CHECK(contains(table, "batch-size ramp"));
  CHECK(contains(table, "1..3"));
  CHECK(contains(table, "6..7"));
  CHECK(contains(table, "7 steps with 512 tokens"));
  const auto json = nlohmann::json::parse(plan({"train.steps=7"}, {"--format", "json"}));
  REQUIRE(json["ramp"].size() == 4);
  CHECK(json["ramp"][1]["first_step"] == 4);
  CHECK(json["ramp"][1]["steps"] == 1);
  CHECK(json["ramp"][1]["batch_size"] == 4);
  CHECK(json["ramp"][1]["microbatches"] == 4);
  CHECK(json["ramp"][1]["tokens_per_step"] == 64);
  // 512 tokens are the 7 steps above, one more needs another step.
  const auto steps = [&](const char* tokens) {
    return nlohmann::json::parse(
        plan({std::string("train.tokens=") + tokens}, {"--format", "json"}))["steps"];
  };
  CHECK(steps("512") == 7);
  CHECK(steps("513") == 8);
  const Outcome wrong =
      trainctl({"validate", config, "--set", "train.rampup_batch_size=[2, 4, 9]"});
  CHECK(wrong.exit_code == 78);
  CHECK(contains(wrong.err, "global_batch_size (8) - start (2) = 6 must be divisible by"));
}
