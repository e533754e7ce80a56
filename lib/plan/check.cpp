#include "plan/check.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace trainctl {

bool Check::clean(std::initializer_list<std::string_view> paths) const {
  for (const Diagnostic& found : diagnostics_.list()) {
    if (found.severity != Severity::error) continue;
    for (const std::string_view path : paths) {
      if (path == found.path || path.starts_with(found.path + ".")) return false;
    }
  }
  return true;
}

bool Check::given(const std::string& path) const {
  for (auto at = sources_.places().lower_bound(path); at != sources_.places().end(); ++at) {
    const bool same = at->first == path || at->first.starts_with(path + ".");
    if (!same) return false;
    const Place::Origin origin = at->second.origin;
    if (origin == Place::Origin::file || origin == Place::Origin::set_option) return true;
  }
  return false;
}

void Check::error(const char* code, const std::string& path, const std::string& message,
                  const std::string& help) {
  diagnostics_.add({Severity::error, code, path, message, help, sources_.find(path)});
}

void Check::warning(const char* code, const std::string& path, const std::string& message,
                    const std::string& help) {
  diagnostics_.add({Severity::warning, code, path, message, help, sources_.find(path)});
}

void Check::range(const std::string& path, std::int64_t value, std::int64_t least,
                  std::int64_t most) {
  if ((value >= least && value <= most) || !clean({path})) return;
  error("out-of-range", path,
        std::to_string(value) + " is not allowed: the value must be " + std::to_string(least) +
            " to " + std::to_string(most));
}

void Check::rule(const std::string& path, bool holds, double value, const char* rule) {
  if (holds || !clean({path})) return;
  error("out-of-range", path,
        number(value) + " is not allowed: the value must be " + std::string(rule));
}

void Check::no_effect(const std::string& path, bool differs, const std::string& reason) {
  if (differs && given(path)) warning("no-effect", path, "has no effect: " + reason);
}

std::string divisors_near(std::int64_t n, std::int64_t near, std::size_t most) {
  std::vector<std::int64_t> found;
  for (std::int64_t low = 1; low * low <= n; ++low) {
    if (n % low != 0) continue;
    found.push_back(low);
    if (low != n / low) found.push_back(n / low);
  }
  const auto nearer = [near](std::int64_t a, std::int64_t b) {
    const std::int64_t da = std::abs(a - near);
    const std::int64_t db = std::abs(b - near);
    return da != db ? da < db : a < b;
  };
  std::sort(found.begin(), found.end(), nearer);
  found.resize(std::min(found.size(), most));
  std::sort(found.begin(), found.end());
  std::string text;
  for (std::int64_t value : found) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

std::string multiples_near(std::int64_t n, std::int64_t near) {
  const std::int64_t below = near / n * n;
  const std::string above = std::to_string(below + n);
  return below > 0 ? std::to_string(below) + ", " + above : above;
}

std::string number(double value) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.9g", value);
  return buffer.data();
}

}  // namespace trainctl
