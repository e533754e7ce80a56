// trainctl verify on the command line: rows, JSON, refusals. Needs no data.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"
#include "runs.h"

using Json = nlohmann::json;

namespace {

std::vector<std::string> words_of(const std::string& config, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"verify", "--config", config, "--set", "data.train=none"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("verify prints a row for each layout") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome own = trainctl(words_of(config, {"--world-size", "2"}));
  INFO(own.err << own.out);
  CHECK(own.exit_code == 0);
  CHECK(own.err.empty());
  CHECK(contains(own.out, "layout"));
  CHECK(contains(own.out, "dp2 "));
  CHECK(contains(own.out, "equal"));
  CHECK(contains(own.out, "1 layout equal to a single rank over 3 steps"));
  const Outcome list = trainctl(words_of(config, {"--layouts", "tp2sp,pp2,tp2+pp2"}));
  INFO(list.err << list.out);
  CHECK(list.exit_code == 0);
  CHECK(contains(list.out, "3 layouts equal"));
}

TEST_CASE("verify of all layouts as JSON counts what rules forbid") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome outcome =
      trainctl(words_of(config, {"--world-size", "2", "--layouts", "all", "--steps", "1",
                                 "--format", "json", "--set", "model.num_layers=1"}));
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  const Json json = Json::parse(outcome.out);
  CHECK(json["equal"] == true);
  CHECK(json["steps"] == 1);
  CHECK(json["layouts"].size() > 10);
  const Json& largest = json["layouts"][0]["largest"];
  CHECK(largest["error"] <= largest["bound"]);
  const std::string beside = largest["beside"];
  CHECK((beside == "a single rank has" ||
         beside == "differences of the loss along a direction have"));
  const auto& skipped = json["skipped"];
  CHECK(std::any_of(skipped.begin(), skipped.end(),
                    [](const Json& row) { return row["code"] == "stage-layers"; }));
}

TEST_CASE("verify passes a checkpoint from layout to layout") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome pairs =
      trainctl(words_of(config, {"--layouts", "tp2,pp2", "--steps", "1", "--through-checkpoint"}));
  INFO(pairs.err << pairs.out);
  CHECK(pairs.exit_code == 0);
  for (const char* pair : {"dp1->dp1 ", "dp1->tp2 ", "tp2->pp2 ", "pp2->dp1 ", "pp2->pp2 "}) {
    CHECK(contains(pairs.out, pair));
  }
  CHECK(contains(pairs.out,
                 "6 pairs equal to a single rank over 2 steps with a checkpoint after step 1"));
  const Outcome all = trainctl(words_of(
      config, {"--layouts", "tp2,pp2", "--steps", "1", "--through-checkpoint", "--every-pair"}));
  CHECK(contains(all.out, "9 pairs equal"));
  const Outcome alone = trainctl(words_of(config, {"--every-pair"}));
  CHECK(alone.exit_code == 2);
  CHECK(contains(alone.err, "--every-pair requires --through-checkpoint"));
}

TEST_CASE("verify of a few layouts tells the time before it runs, and tries other settings") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome quick =
      trainctl(words_of(config, {"--layouts", "dp2", "--options", "quick", "--steps", "1",
                                 "--format", "json", "--set", "model.num_layers=1"}));
  INFO(quick.err << quick.out);
  REQUIRE(quick.exit_code == 0);
  CHECK(contains(quick.err, " layouts, with "));
  CHECK(contains(quick.err, " combinations of other settings: about "));
  const Json rows = Json::parse(quick.out)["layouts"];
  CHECK(rows.size() > 4);
  CHECK_FALSE(rows[0].contains("settings"));
  CHECK(rows[1]["settings"].size() > 5);
  const Outcome few = trainctl(words_of(config, {"--layouts", "quick", "--world-size", "2"}));
  CHECK(few.exit_code == 0);
  CHECK(contains(few.out, "12 layouts equal"));
  CHECK(contains(few.err, "12 layouts: about "));
}

TEST_CASE("verify compares a model whose layers are of several kinds") {
  const Outcome quick =
      trainctl({"verify", "--config", TRAINCTL_SOURCE_DIR "/configs/verify-kinds.yaml",
                "--world-size", "4", "--layouts", "quick", "--steps", "1"});
  INFO(quick.err << quick.out);
  CHECK(quick.exit_code == 0);
  CHECK(contains(quick.out, " layouts equal"));
}

TEST_CASE("verify compares one layer of a model that is too large") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome layer = trainctl(words_of(config, {"--size", "layer", "--world-size", "2"}));
  INFO(layer.err << layer.out);
  CHECK(layer.exit_code == 0);
  CHECK(contains(layer.err, "compared are 1 of 2 layers"));
  CHECK(contains(layer.out, "dp2 "));
}

TEST_CASE("verify refuses what it cannot run") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome word = trainctl(words_of(config, {"--layouts", "tp2+gpip"}));
  CHECK(word.exit_code == 2);
  CHECK(contains(word.err, "did you mean 'gpipe'?"));
  const Outcome rule = trainctl(words_of(config, {"--layouts", "tp3"}));
  CHECK(rule.exit_code == 78);
  CHECK(contains(rule.err, "layout tp3 is not legal"));
  CHECK(rule.out.empty());
  const Outcome alone = trainctl(words_of(config, {"--exhaustive"}));
  CHECK(alone.exit_code == 2);
  const Outcome many =
      trainctl(words_of(config, {"--world-size", "8", "--layouts", "all", "--exhaustive"}));
  CHECK(many.exit_code == 2);
  CHECK(contains(many.err, " combinations of settings, and at most 100,000 are planned"));
}

TEST_CASE("verify refuses what would say nothing") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome word = trainctl(words_of(config, {"--layouts", "tp2+gpipe"}));
  CHECK(word.exit_code == 2);
  CHECK(contains(word.err, "gpipe has no effect without several pipeline stages"));
  const Outcome none = trainctl(words_of(config, {"--world-size", "31", "--layouts", "all"}));
  CHECK(none.exit_code == 78);
  CHECK(contains(none.err, "no layout of 31 ranks is legal"));
  CHECK(contains(none.err, "heads-tensor: "));
  CHECK(none.out.empty());
  const std::string file = std::string(TRAINCTL_SOURCE_DIR) + "/configs/llama3-8b.yaml";
  const Outcome large = trainctl({"verify", "--config", file, "--memory-limit", "1"});
  CHECK(large.exit_code == 69);
  CHECK(contains(large.err, "1.00 GiB may be used (--memory-limit); use fewer ranks"));
  const Outcome whole = trainctl({"verify", "--config", file, "--size", "whole"});
  CHECK(whole.exit_code == 69);
  CHECK(contains(whole.err, "; use --size layer, fewer ranks, or fewer --steps"));
}

TEST_CASE("verify compares layouts over MPI, and one process prints") {
  const TempDir dir;
  const std::string config = dir.write("a.yaml", small_config());
  const Outcome pairs = train_over_mpi(
      2, words_of(config, {"--layouts", "tp2", "--steps", "1", "--through-checkpoint"}));
  INFO(pairs.err << pairs.out);
  CHECK(pairs.exit_code == 0);
  for (const char* pair : {"dp1->dp1 ", "dp1->tp2 ", "tp2->dp1 ", "tp2->tp2 "}) {
    CHECK(contains(pairs.out, pair));
    CHECK(pairs.out.find(pair) == pairs.out.rfind(pair));
  }
  CHECK(contains(pairs.out, "4 pairs equal to a single rank"));
  const Outcome own = train_over_mpi(2, words_of(config, {"--steps", "1"}));
  INFO(own.err << own.out);
  CHECK(own.exit_code == 0);
  CHECK(contains(own.out, "dp2 "));
  const Outcome large = train_over_mpi(2, words_of(config, {"--layouts", "dp4"}));
  CHECK(large.exit_code == exits::usage);
  const std::string why = "layout dp4 has 4 ranks, but mpirun has started 2";
  CHECK(contains(large.err, why));
  CHECK(large.err.find(why) == large.err.rfind(why));
}
