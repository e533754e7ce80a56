// Steps that were measured, as rows of a JSON file: those that others have published
// (tests/plan/published_steps.json), or those of one's own runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainctl {

struct PublishedStep {
  std::string name;    // "VIA-Research/vTrain ... 145B tp 8 pp 4"
  std::string source;  // rows of one source share a weight
  std::string group;   // rows of the same model and layout are fitted together or not at all
  std::string set;     // rows of one set differ in layout only: which is fastest can be asked
  std::string config;  // YAML
  std::int64_t ranks = 0;
  double seconds = 0;  // of a step
  bool experts = false;
  bool fitted = true;     // false: its error is counted, but no constant follows it
  std::string unplanned;  // why it has no plan; empty: it has one
};

/// Reads a list of rows. A row of one's own is {"config": FILE, "ranks": N, "seconds": S}, with
/// section cluster in the file; the others have the keys of tests/plan/published_steps.json. Throws
/// Error{bad_data} that names the row.
std::vector<PublishedStep> read_published_steps(const std::string& path);

}  // namespace trainctl
