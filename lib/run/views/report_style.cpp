#include "run/views/report_page.h"

namespace trainctl {

std::string_view report_style() {
  return R"css(
#curves { display: grid; gap: 14px; margin-top: 14px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); }
#curves section { margin: 0; }
.ledger { margin: 0 0 10px; padding: 0; list-style: none; font-size: 13px; }
.ledger li { display: grid; grid-template-columns: 84px 1fr 72px; gap: 0 8px; align-items: center;
  margin-bottom: 4px; }
.ledger .bar { display: flex; height: 18px; }
.ledger .bar i { border-right: 1px solid var(--card); }
.ledger .n { text-align: right; font-variant-numeric: tabular-nums; color: var(--soft); }
.pairs { display: grid; gap: 0 40px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 380px), 1fr)); }
.pairs > div { min-width: 0; }
canvas.loads { display: block; margin-bottom: 6px; touch-action: pan-y; }
circle { stroke: var(--card); stroke-width: 1; }
)css";
}

}  // namespace trainctl
