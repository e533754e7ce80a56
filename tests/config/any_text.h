// Properties of the configuration reader that hold for all bytes that it may be given. Shared by
// the fuzz target and by its short deterministic run among the unit tests.
#pragma once

#include <string>
#include <string_view>

namespace trainctl::test {

/// Reads `input` (a YAML text; what follows a zero byte is a --set argument, or, as "@NAME\nTEXT",
/// a file that may be included, and so on) and returns
/// what is wrong with the answer, "" if nothing.
std::string broken_promise(std::string_view input);

}  // namespace trainctl::test
