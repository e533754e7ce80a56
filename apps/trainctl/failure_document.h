// What --format json prints in place of a document where a configuration cannot be read.
#pragma once

#include <string>

#include "base/error.h"

namespace trainctl {

/// Prints the findings' document with one error, "unreadable", if `failure` says that a file is
/// missing or unreadable; throws `failure` again if it is another. Returns its exit code.
int print_unreadable(const std::string& file, const Error& failure);

}  // namespace trainctl
