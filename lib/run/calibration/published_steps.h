// Measured steps as rows of a JSON file: steps published by others
// (tests/plan/published_steps.json) or steps of the user's own runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainctl {

struct PublishedStep {
  std::string name;    // such as "VIA-Research/vTrain ... 145B tp 8 pp 4"
  std::string source;  // rows with the same source share a weight
  std::string group;   // rows of the same model and layout, which stay in one fold of the fit
  std::string set;     // rows of one set differ in layout only, so the fastest layout is known
  std::string config;  // YAML text
  std::int64_t ranks = 0;
  double seconds = 0;  // measured seconds of a step
  bool experts = false;
  bool fitted = true;     // if false, the error is counted, but the fit does not use the row
  std::string unplanned;  // reason why the row has no plan; empty if it has one
};

/// Reads a list of rows. A row of the user's own is {"config": FILE, "ranks": N, "seconds": S},
/// where FILE has a section cluster; other rows have the keys of tests/plan/published_steps.json.
/// Throws Error{bad_data} that names the row.
std::vector<PublishedStep> read_published_steps(const std::string& path);

}  // namespace trainctl
