// The part of a source line that is shown under a message; long lines are shortened around it.
#pragma once

#include <string>
#include <string_view>

#include "config/report/diagnostics.h"

namespace trainctl {

struct Snippet {
  std::string text;           // "" if there is nothing to show
  std::size_t highlight = 0;  // characters before the marked part
  std::size_t length = 0;     // characters of the marked part
  std::string padding;        // as wide as the text before the marked part, tabs kept
};

/// The text with each newline and all that steers a terminal (steering_bytes) replaced by "?".
std::string printable(std::string_view text);

/// The snippet for a place; empty if the place is in no text that is known.
Snippet make_snippet(const Diagnostics& diagnostics, const Place& place);

}  // namespace trainctl
