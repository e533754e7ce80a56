#include "config/report/codes.h"

#include <algorithm>

namespace trainctl {

const std::vector<CodeNote>& diagnostic_codes() {
  static const std::vector<CodeNote> all = [] {
    std::vector<CodeNote> notes;
    for (const auto part : {codes_of_text(), codes_of_training(), codes_of_mesh(),
                            codes_of_pipeline(), codes_of_options()}) {
      notes.insert(notes.end(), part.begin(), part.end());
    }
    std::sort(notes.begin(), notes.end(),
              [](const CodeNote& a, const CodeNote& b) { return a.code < b.code; });
    return notes;
  }();
  return all;
}

const CodeNote* find_code(std::string_view code) {
  for (const CodeNote& note : diagnostic_codes()) {
    if (note.code == code) return &note;
  }
  return nullptr;
}

}  // namespace trainctl
