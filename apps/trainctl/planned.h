// Shared by validate, plan and verify: computes a Plan and its diagnostics from a YAML file and a
// world size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arguments.h"
#include "config/read/read.h"
#include "plan/plan.h"
#include "run/prepare.h"

namespace trainctl {

struct PlanRequest {
  std::string config;
  std::vector<std::string> set_options;
  std::int64_t world_size = 0;      // if 0, from the config, else 1
  std::int64_t ranks_per_host = 0;  // if 0, all ranks, but at most 8
  bool search_again = false;        // auto_parallel searches even if the run has an answer
  bool reads_data = false;          // reads the data if train.epochs needs it
};

/// Adds --config, --set, --world-size, --ranks-per-host, --search-again.
void add_plan_options(CommandLine& line, PlanRequest& request);

struct Planned {
  ReadResult read;
  Site site;
  Plan plan;                   // usable only if ok()
  ChosenArrangement layout;    // found by auto_parallel
  bool steps_unknown = false;  // train.epochs is set and the data was not read
  bool ok() const { return !read.diagnostics.has_errors(); }
};

/// Throws Error{missing_input} if the file cannot be read. The plan's diagnostics are sorted.
Planned plan_config(const PlanRequest& request, Purpose purpose);

}  // namespace trainctl
