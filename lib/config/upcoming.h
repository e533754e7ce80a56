// Names that users bring from MindSpore, MindFormers and Megatron, and the names of our own later
// features: refused as "not built yet" rather than as unknown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct Upcoming {
  std::string_view name;
  std::string_view no_op;    // the value that asks for nothing and is accepted; "" for none
  std::string_view instead;  // what serves the purpose today; "" for nothing
};

/// The entry for a key, or nullptr.
const Upcoming* find_upcoming(std::string_view name);
std::vector<std::string> upcoming_names();

}  // namespace trainctl
