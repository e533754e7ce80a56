#include "failure_document.h"

#include "config/report/diagnostics.h"
#include "output.h"

namespace trainctl {

int print_unreadable(const std::string& file, const Error& failure) {
  if (failure.code() != ExitCode::missing_input) throw failure;
  Diagnostics diagnostics;
  diagnostics.add({.severity = Severity::error,
                   .code = "unreadable",
                   .path = "",
                   .message = failure.what(),
                   .help = "",
                   .place = {.origin = Place::Origin::file, .file = file}});
  print(with_newline(render_json(diagnostics)));
  return static_cast<int>(failure.code());
}

}  // namespace trainctl
