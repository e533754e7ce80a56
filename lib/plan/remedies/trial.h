// Which errors a changed configuration has that the given one has not; what the errors then say.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/report/diagnostics.h"
#include "config/schema/config.h"
#include "plan/tables/site.h"

namespace trainctl {

class Trial {
 public:
  Trial(const Config& config, const SourceMap& sources, const Site& site);

  /// Whether the error is gone in the changed configuration, in which `given` was written, and no
  /// rule is broken that holds for the given one.
  bool cures(const Diagnostic& error, const Config& changed, const Site& site,
             const std::string& given = "") const;

 private:
  using Errors = std::set<std::pair<std::string, std::string>>;  // code, path
  static Errors errors_of(const Config& config, const SourceMap& sources, const Site& site);

  const SourceMap& sources_;
  Errors before_;
};

/// Gives each finding the help that `make` returns for it.
template <class Make>
void change_help(Diagnostics& diagnostics, Make make) {
  std::vector<Diagnostic> list = diagnostics.list();
  for (Diagnostic& one : list) one.help = make(std::as_const(one));
  diagnostics.drop_if([](const Diagnostic&) { return true; });
  for (Diagnostic& one : list) diagnostics.add(std::move(one));
}

}  // namespace trainctl
