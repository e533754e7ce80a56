// The document that --format json prints if a configuration cannot be read.
#pragma once

#include <string>

#include "base/error.h"

namespace trainctl {

/// Prints the failure document with one error, "unreadable", if `failure` is a missing or
/// unreadable file, and returns its exit code. Rethrows any other `failure`.
int print_unreadable(const std::string& file, const Error& failure);

}  // namespace trainctl
