#include "plan/remedies/trial.h"

#include <algorithm>

#include "plan/rules/check.h"

namespace trainctl {

Trial::Trial(const Config& config, const SourceMap& sources, const Site& site)
    : sources_(sources), before_(errors_of(config, sources, site)) {}

Trial::Errors Trial::errors_of(const Config& config, const SourceMap& sources, const Site& site) {
  Diagnostics found;
  Check check(sources, found);
  check_rules(Facts(config, site), check);
  Errors errors;
  for (const Diagnostic& one : found.list()) {
    if (one.severity == Severity::error) errors.emplace(one.code, one.path);
  }
  return errors;
}

bool Trial::cures(const Diagnostic& error, const Config& changed, const Site& site,
                  const std::string& given) const {
  SourceMap sources = sources_;
  if (!given.empty()) sources.record(given, {Place::Origin::set_option, given});
  const Errors after = errors_of(changed, sources, site);
  return std::ranges::all_of(after, [&](const auto& one) {
    return before_.contains(one) && one != std::pair(error.code, error.path);
  });
}

}  // namespace trainctl
