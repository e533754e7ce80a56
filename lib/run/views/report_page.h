// The report of one or more runs: one self-contained page of HTML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run/views/run_files.h"

namespace trainctl {

/// Curves of all runs over each other, what each run took, its ledger planned and measured, the
/// time line of a step, and the configuration values in which the runs differ. Of each curve, at
/// most 1000 points are kept: means over neighbouring steps.
std::string report_page(const std::vector<RunFiles>& runs);

/// The contents of <style> and <script>.
std::string_view report_style();
std::string_view report_script();

}  // namespace trainctl
