// Other programs: running one for its output, and replacing this process by one.
#pragma once

#include <string>

#include "arguments.h"

namespace trainctl {

/// Replaces this process by `program` (looked up in PATH unless it holds a slash); `words` follow
/// the program's name. Returns only if that failed, with the reason.
std::string execute(const std::string& program, const Arguments& words);

/// The output of `program words...` on both streams, at most 64 KiB; "" if it cannot be started.
std::string output_of(const std::string& program, const Arguments& words);

/// The words as one line for a POSIX shell.
std::string shell_line(const Arguments& words);

/// The absolute path of this program.
std::string own_path();

}  // namespace trainctl
