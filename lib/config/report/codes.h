// Explanations of all diagnostic codes. The codes are stable: programs may rely on them. A test
// ensures that the table has exactly the codes used in the sources.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trainctl {

struct CodeNote {
  std::string_view code;
  std::string_view summary;  // one line, no final period
  std::string_view rule;     // whole sentences: the rule, and where it comes from
  std::string_view fails;    // YAML that breaks the rule, one line
  std::string_view passes;   // the nearest YAML that satisfies it
};

/// The notes of all codes by name, ascending.
const std::vector<CodeNote>& diagnostic_codes();
/// The note of `code`, or nullptr.
const CodeNote* find_code(std::string_view code);

// The parts of the table, by subject.
std::span<const CodeNote> codes_of_text();      // YAML, composition, values, upstream spellings
std::span<const CodeNote> codes_of_training();  // model, data, optimizer, batches
std::span<const CodeNote> codes_of_mesh();      // parallel degrees and what they divide, experts
std::span<const CodeNote> codes_of_pipeline();  // stages, messages
std::span<const CodeNote> codes_of_options();   // sharding, fusion, overlap, recomputation, modes

}  // namespace trainctl
