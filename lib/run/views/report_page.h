// The report of one or more runs: one self-contained page of HTML.
#pragma once

#include <string>
#include <vector>

#include "run/views/run_files.h"

namespace trainctl {

/// The page: curves of all runs in common charts, the loads of their experts, resources of each
/// run, its step as planned and as measured (time, memory, communication by kind), the time line of
/// a step, the configuration values in which the runs differ, and results against these values. A
/// curve has at most 1000 points, means over neighbouring steps. `now`: seconds since 1970.
std::string report_page(const std::vector<RunFiles>& runs, double now);

}  // namespace trainctl
