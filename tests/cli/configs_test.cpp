// The example configurations are valid, at the world sizes that their comments name.
#include <sstream>

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

namespace {

/// "25.45 GiB per rank", the last part of a stated plan, in bytes.
double bytes_in(const std::string& stated) {
  std::istringstream words(stated.substr(stated.rfind(", ") + 2));
  double value = 0;
  std::string unit;
  words >> value >> unit;
  return value * (unit == "GiB" ? 1073741824.0 : unit == "MiB" ? 1048576.0 : 0.0);
}

}  // namespace

TEST_CASE("the examples' heads state what is planned") {
  int stated = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TRAINCTL_SOURCE_DIR) + "/configs")) {
    std::istringstream lines(read_file(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      const std::string mark = "# planned: ";
      if (line.rfind(mark, 0) != 0) continue;
      const std::string said = line.substr(mark.size());
      const Outcome outcome = trainctl({"validate", entry.path().string()});
      CAPTURE(outcome.out);
      CAPTURE(said);
      ++stated;
      CHECK(contains(outcome.out, "valid; " + said.substr(0, said.rfind(", "))));
      std::string planned = outcome.out.substr(0, outcome.out.find('\n'));
      const double ratio = bytes_in(said) / bytes_in(planned);
      CHECK(ratio > 0.85);  // buffers depend on the number of cores
      CHECK(ratio < 1.15);
    }
  }
  CHECK(stated >= 8);
}
