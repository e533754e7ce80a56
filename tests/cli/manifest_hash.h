// The hash at the end of a checkpoint's manifest, for tests that change one. The library has a
// namespace that is called as the program's function here.
#pragma once

#include <string>

/// XXH3, as 16 hexadecimal digits.
std::string hash_of_text(const std::string& text);
