// plan --search --format html: a page with charts of a search.
#pragma once

#include <string>

#include "formats/print/print.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// A self-contained page: the frontier, maps of layouts by two keys, the kinds of seconds of the
/// best layout and those compared with it, the effect of the cluster's figures on the answer, and
/// the time line of the best layout. If no layout fits, only the maps and the reasons.
std::string print_search_page(const ArrangementSearch& search, const SearchedArrangements& searched,
                              const PageHead& head);

}  // namespace trainctl
