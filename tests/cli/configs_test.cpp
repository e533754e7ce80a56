// The example configurations are valid, at the world sizes that their comments name.
#include "catch.h"
#include "process.h"

TEST_CASE("every example configuration is valid") {
  int seen = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TRAINCTL_SOURCE_DIR) + "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const Outcome outcome = trainctl({"validate", "--config", entry.path().string()});
    INFO(entry.path() << ": " << outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(outcome.err.empty());
    ++seen;
  }
  CHECK(seen >= 5);
}

TEST_CASE("examples plan over several ranks") {
  const std::string folder = std::string(TRAINCTL_SOURCE_DIR) + "/configs/";
  const std::pair<const char*, const char*> rows[] = {
      {"quickstart.yaml", "2"}, {"gpt.yaml", "8"}, {"llama3-8b.yaml", "64"}};
  for (const auto& [file, ranks] : rows) {
    const Outcome outcome = trainctl({"plan", "--config", folder + file, "--world-size", ranks});
    INFO(file << ": " << outcome.err);
    CHECK(outcome.exit_code == 0);
  }
}
