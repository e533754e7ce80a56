// One search of layouts within one limit, without the comparisons with the best.
#pragma once

#include "run/layouts/layout_bound.h"
#include "run/layouts/search_layouts.h"

namespace trainctl {

/// `bound` keeps what it knows of layouts, which does not depend on the limit.
SearchedLayouts search_once(const LayoutSearch& search, const Machine& machine, LayoutBound& bound);

}  // namespace trainctl
