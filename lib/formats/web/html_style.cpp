#include "formats/web/plan_page.h"

namespace trainctl {

std::string_view plan_style() {
  return R"css(
.sets { display: flex; flex-wrap: wrap; gap: 4px 8px; margin: 0 0 10px; padding: 0;
  list-style: none; }
.sets li { border: 1px solid var(--line); border-radius: 6px; padding: 0 8px;
  background: var(--card); }
.facts { display: grid; gap: 10px; margin-top: 4px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 165px), 1fr)); }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 14px; min-width: 0; }
.facts b { display: block; overflow-wrap: anywhere; font-size: 15.5px; font-weight: 600;
  font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: 13px; }
.facts small { display: block; color: var(--soft); font-size: 12.5px; line-height: 1.35; }
.columns { display: grid; gap: 0 40px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); }
.columns h3 { margin-top: 6px; }
.columns th, .columns td { padding-right: 8px; }
.stages { list-style: none; margin: 0; padding: 0; }
.stages li { display: grid; grid-template-columns: 72px 1fr; gap: 1px 8px; font-size: 13px;
  margin-bottom: 7px; }
.stages b { font-weight: 500; }
.stages span { color: var(--soft); text-align: right; overflow-wrap: anywhere; }
.stages div { position: relative; grid-column: 1 / 3; height: 10px; border-radius: 3px; }
.stages i { position: absolute; top: 0; bottom: 0; border-radius: 3px; min-width: 2px;
  border-right: 1px solid var(--card); }
.held { margin-bottom: 12px; }
.of { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 12px;
  font-size: 13px; }
.of b { font-weight: 500; }
.of span { color: var(--soft); font-variant-numeric: tabular-nums; }
.segments { display: flex; gap: 1px; height: 26px; border-radius: 4px; overflow: hidden; }
.segments span { flex-basis: 0; min-width: 36px; color: var(--on); font-size: 11px;
  line-height: 26px; text-align: center; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.scale { position: relative; height: 7px; margin-top: 3px; background: var(--idle);
  border-radius: 3px; }
.scale .part { position: absolute; left: 0; top: 0; bottom: 0; border-radius: 3px;
  background: var(--soft); }
.scale .over { background: repeating-linear-gradient(45deg, var(--s1) 0 5px, var(--ink) 5px 7px); }
.scale .limit { position: absolute; top: -4px; bottom: -4px; width: 2px;
  background: var(--accent); }
p b.over { color: var(--s1); }
td.mono { white-space: nowrap; }
tr.sum td { font-weight: 600; }
tr.sum small { font-weight: 400; }
.f0 { fill: var(--c0); background: var(--c0); }
.f1 { fill: color-mix(in srgb, var(--c0) 65%, #fff); }
.f2 { fill: color-mix(in srgb, var(--c0) 35%, #fff); }
.b0 { fill: var(--c1); background: var(--c1); }
.b1 { fill: color-mix(in srgb, var(--c1) 65%, #fff); }
.b2 { fill: color-mix(in srgb, var(--c1) 35%, #fff); }
.w0 { fill: var(--c2); background: var(--c2); }
.w1 { fill: color-mix(in srgb, var(--c2) 65%, #fff); }
.w2 { fill: color-mix(in srgb, var(--c2) 35%, #fff); }
#cells { overflow: hidden; touch-action: pan-y; }
.rank { stroke: var(--card); stroke-width: 1; }
.rank.near { stroke: var(--ink); stroke-width: 2.5; }
.rank.chosen { stroke: var(--ink); stroke-width: 4; }
button.alone { border-style: dashed; }
#rank { width: 110px; }
)css";
}

}  // namespace trainctl
