// Explanations of all diagnostic codes, from codes.txt. The codes are stable: programs may rely on
// them. A test ensures that the file has exactly the codes used in the sources.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct CodeNote {
  std::string code;
  std::string summary;  // one line, no final period
  std::string rule;     // whole sentences: the rule and its source
  std::string fails;    // YAML of one line that breaks the rule
  std::string passes;   // the nearest YAML that satisfies it
};

/// The notes of all codes by name, ascending.
const std::vector<CodeNote>& diagnostic_codes();
/// The note of `code`, or nullptr.
const CodeNote* find_code(std::string_view code);

}  // namespace trainctl
