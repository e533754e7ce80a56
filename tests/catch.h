// The one place that knows which Catch2 is installed: version 2 (Debian 12) or 3.
#pragma once

#ifdef TRAINCTL_CATCH3
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {
/// Version 2's name for what version 3 calls ContainsSubstring.
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
}  // namespace Catch
#else
#include <catch2/catch.hpp>
#endif
