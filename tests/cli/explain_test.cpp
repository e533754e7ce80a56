// trainctl explain, and where the messages point to it.
#include <nlohmann/json.hpp>

#include "catch.h"
#include "process.h"

TEST_CASE("a code is explained with its rule and examples") {
  const Outcome outcome = trainctl({"explain", "world-size"});
  CHECK(outcome.exit_code == 0);
  CHECK(contains(outcome.out,
                 "world-size: The parallel degrees do not multiply to the world size\n\n"));
  CHECK(contains(outcome.out, "Megatron"));
  CHECK(contains(outcome.out, "\nFails:  8 ranks: parallel: {tensor_parallel: 2"));
  CHECK(contains(outcome.out, "\nPasses: "));
  const auto json =
      nlohmann::json::parse(trainctl({"explain", "world-size", "--format", "json"}).out);
  CHECK(json["code"] == "world-size");
  for (const char* key : {"summary", "rule", "fails", "passes"}) CHECK(json[key].is_string());
}

TEST_CASE("all codes are listed, in order, as text and JSON") {
  const Outcome text = trainctl({"explain", "--list"});
  CHECK(text.exit_code == 0);
  CHECK(contains(text.out, "heads-divide"));
  const auto list = nlohmann::json::parse(trainctl({"explain", "--list", "--format", "json"}).out);
  REQUIRE(list.is_array());
  CHECK(list.size() > 100);
  for (std::size_t i = 1; i < list.size(); ++i) {
    CHECK(list[i - 1]["code"].get<std::string>() < list[i]["code"].get<std::string>());
  }
}

TEST_CASE("an unknown code is a usage error with the nearest one") {
  const Outcome outcome = trainctl({"explain", "word-size"});
  CHECK(outcome.exit_code == 2);
  CHECK(contains(outcome.err, "unknown code or key 'word-size'; did you mean world-size?"));
  CHECK(outcome.out.empty());
  const Outcome far = trainctl({"explain", "xyzzy-plugh-frotz"});
  CHECK(far.exit_code == 2);
  CHECK(contains(far.err, "trainctl explain --list"));
  CHECK(trainctl({"explain"}).exit_code == 2);
  CHECK(trainctl({"explain", "--list", "world-size"}).exit_code == 2);
}

TEST_CASE("validate says how to learn more, once") {
  const TempDir dir;
  const std::string file = dir.write("a.yaml", small_config() + "parallel: {tensor_parallel: 3}\n");
  const Outcome outcome = trainctl({"validate", "--config", file, "--world-size", "8"});
  CHECK(outcome.exit_code == 78);
  const std::string pointer = "`trainctl explain world-size` explains this error";
  const std::size_t place = outcome.err.find(pointer);
  REQUIRE(place != std::string::npos);
  CHECK(outcome.err.find("trainctl explain", place + pointer.size()) == std::string::npos);
}

TEST_CASE("a file that cannot be read has a code in JSON") {
  const TempDir dir;
  const std::string absent = dir / "absent.yaml";
  const std::string present = dir.write("a.yaml", small_config());
  const std::vector<std::vector<std::string>> commands = {{"validate", "--config", absent},
                                                          {"plan", "--config", absent},
                                                          {"plan", "--diff", present, absent}};
  for (std::vector<std::string> words : commands) {
    INFO(words[0] << " " << words[1]);
    const Outcome text = trainctl(words);
    CHECK(text.exit_code == 66);
    CHECK(text.out.empty());
    CHECK(contains(text.err, "absent.yaml"));
    words.insert(words.end(), {"--format", "json"});
    const Outcome outcome = trainctl(words);
    CHECK(outcome.exit_code == 66);
    CHECK(outcome.err.empty());
    const auto document = nlohmann::json::parse(outcome.out);
    CHECK(document["format_version"] == 1);
    CHECK(document["valid"] == false);
    const auto found = document["diagnostics"][0];
    CHECK(found["code"] == "unreadable");
    CHECK(found["range"]["filename"] == absent);
    CHECK(contains(found["summary"].get<std::string>(), "absent.yaml"));
  }
}

TEST_CASE("explain explains a key without any file") {
  const Outcome key = trainctl({"explain", "model.hidden_size"});
  CHECK(key.exit_code == 0);
  CHECK(contains(key.out, "Width of the residual stream"));
  CHECK(contains(key.out, "1 to 1048576"));
  CHECK(contains(trainctl({"explain", "parallel"}).out, "tensor_parallel:"));
  const Outcome upstream = trainctl({"explain", "tensor_model_parallel_size"});
  CHECK(contains(upstream.out, "an upstream name of parallel.tensor_parallel"));
  const auto json =
      nlohmann::json::parse(trainctl({"explain", "train.steps", "--format", "json"}).out);
  CHECK(json["key"] == "train.steps");
  CHECK(json["default"] == "required");
  const Outcome near = trainctl({"explain", "model.hiden_size"});
  CHECK(near.exit_code == 2);
  CHECK(contains(near.err, "did you mean model.hidden_size?"));
}
