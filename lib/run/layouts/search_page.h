// plan --search --format html: the pictures of a search on one page.
#pragma once

#include <string>

#include "formats/print/print.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// Self-contained: the frontier, maps of layouts by two keys, the uses of the seconds of the best
/// layout and those compared with it, the effect of the figures of the cluster on the answer, and
/// the timeline of the best. Where nothing fits, the maps and the reasons.
std::string print_search_page(const StrategySearch& search, const SearchedStrategies& searched,
                              const PageHead& head);

}  // namespace trainctl
