// Whether the pieces that a manifest lists fit into their files and make up their tensors.
#pragma once

#include <string>

#include "checkpoint/manifest.h"

namespace trainctl {

/// Throws Error{bad_data}, naming `where`, the file, the tensor and the place, unless every tensor
/// is listed once, its pieces hold each element once, and every piece lies within its file.
void check_coverage(const Manifest& manifest, const std::string& where);

}  // namespace trainctl
