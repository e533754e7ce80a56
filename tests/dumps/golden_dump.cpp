// Prints what scripts/compare_golden.sh compares of layouts: for each that `verify --layouts all`
// runs, a hash of its planned document; or, with --layout, the document of one.
//   golden_dump CONFIG RANKS [--layout NAME] [PATH=VALUE ...]
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/integers.h"
#include "config/read/read.h"
#include "formats/print/print.h"
#include "run/prepare.h"
#include "verify/selection/selection.h"

namespace {

using namespace trainctl;

/// The document of the configuration in one layout, or its errors where it is refused.
std::string document_of(const Config& config, const LayoutChoice& layout) {
  const std::int64_t ranks = layout.ranks();
  const Site site{.world_size = ranks, .ranks_per_host = ranks, .cores_per_host = ranks};
  const Config chosen = with_layout(config, layout);
  Diagnostics diagnostics;
  const Plan plan = prepare(chosen, {}, site, Purpose::verify, diagnostics);
  if (diagnostics.has_errors()) return render_text(diagnostics, false);
  return print_json({.plan = plan, .config = &chosen, .diagnostics = &diagnostics});
}

void dump(const std::string& file, std::int64_t ranks, const std::string& only,
          const std::vector<std::string>& sets) {
  const Config config = read_config(file, sets).config;
  const auto show = [&](const LayoutChoice& layout) {
    const std::string document = document_of(config, layout);
    if (!only.empty()) return std::printf("%s\n", document.c_str());
    return std::printf("%016llx %s\n", static_cast<unsigned long long>(fnv1a(document)),
                       layout.name().c_str());
  };
  const std::vector<LayoutChoice> layouts =
      only.empty() ? select_layouts(config, {}, ranks, false).chosen : parse_layouts(only, ranks);
  for (const LayoutChoice& layout : layouts) show(layout);
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> given(words + 1, words + count);
  const bool one = given.size() > 3 && given[2] == "--layout";
  if (given.size() < 2) return 64;
  try {
    const auto sets = given.begin() + (one ? 4 : 2);
    dump(given[0], std::stoll(given[1]), one ? given[3] : "", {sets, given.end()});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "golden_dump: %s\n", error.what());
    return 1;
  }
  return 0;
}
