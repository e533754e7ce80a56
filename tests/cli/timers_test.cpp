// hooks.timers in a run: what the log and metrics.jsonl have of it.
#include "catch.h"
#include "runs.h"

TEST_CASE("hooks.timers reports the phases of the steps since the last report") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  std::vector<std::string> more{"--local-ranks", "2"};
  for (const char* option : {"hooks.timers=true", "log.every=3"}) {
    more.insert(more.end(), {"--set", option});
  }
  const Outcome outcome = trainctl(train_words(config, dir / "run", more));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(contains(outcome.err, "seconds per step in steps 1 to 3, least and most of all ranks"));
  CHECK(contains(outcome.err, "seconds per step in step 4, least and most of all ranks"));
  CHECK(contains(outcome.err, "  all-grads-sync "));
  CHECK(!contains(outcome.err, "not the planned"));
  const auto lines = metrics_of(dir / "run");
  REQUIRE(lines.size() == 4);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool due = i == 2 || i == 3;
    REQUIRE(lines[i].contains("timers") == due);
    if (!due) continue;
    for (const char* timer :
         {"interval-time", "forward-backward", "optimizer", "forward-compute"}) {
      const auto& range = lines[i]["timers"][timer];
      REQUIRE(range.size() == 2);
      CHECK(range[0].get<double>() > 0);
      CHECK(range[0].get<double>() <= range[1].get<double>());
    }
  }
  const auto report = nlohmann::json::parse(read_file(dir / "run/measured.json"));
  for (const auto& rank : report["ranks"]) {
    for (const auto& row : rank["communication"]) CHECK(row["planned"] == row["measured"]);
  }
  const Outcome plain = trainctl(train_words(config, dir / "plain"));
  CHECK(!contains(plain.err, "seconds per step"));
  CHECK(!metrics_of(dir / "plain").back().contains("timers"));
}
