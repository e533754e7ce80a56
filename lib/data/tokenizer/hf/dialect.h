// Patterns of tokenizer.json are written for Oniguruma. Here they are rewritten for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace trainctl::hf {

/// The same pattern for PCRE2 with UTF and UCP. What means another thing there is spelled out or
/// refused: Error{bad_data}, with what it is.
std::string pcre_of(std::string_view pattern);

}  // namespace trainctl::hf
