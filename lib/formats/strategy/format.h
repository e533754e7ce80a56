// The two encodings of a strategy file; the rules common to both are in formats/strategy/file.h.
#pragma once

#include <string>
#include <string_view>

#include "formats/strategy/file.h"
#include "formats/strategy/group_file.h"

namespace trainctl {

std::string write_layouts_protobuf(const LayoutFile& file);
std::string write_layouts_json(const LayoutFile& file);
/// Throws Error{bad_data}.
[[noreturn]] void refuse_file(const std::string& why);
/// Throw Error{bad_data}.
LayoutFile read_layouts_protobuf(std::string_view bytes);
LayoutFile read_layouts_json(std::string_view text);

}  // namespace trainctl
