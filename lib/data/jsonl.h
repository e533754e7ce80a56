// The text of one document in a line of JSON.
#pragma once

#include <string>
#include <string_view>

namespace trainctl {

/// Puts the string under `key` of the JSON object `line` into `text`, reading the whole line but
/// building nothing else. Returns what is wrong, or "".
std::string read_json_text(std::string_view line, std::string_view key, std::string& text);

}  // namespace trainctl
