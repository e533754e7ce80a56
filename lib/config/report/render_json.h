// The rows of render_json's document (diagnostics.h), for documents that list findings too.
#pragma once

#include <string>
#include <vector>

#include "config/report/diagnostics.h"

namespace trainctl {

/// Each finding as a JSON object on one line.
std::vector<std::string> json_rows(const Diagnostics& diagnostics);

}  // namespace trainctl
