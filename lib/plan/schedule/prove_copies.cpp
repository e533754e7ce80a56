#include "plan/schedule/prove_copies.h"

#include <algorithm>
#include <utility>

#include "base/at.h"

namespace trainctl {

CopyProof::CopyProof(const ScheduleInput& input, Fail fail)
    : input_(input), fail_(std::move(fail)) {
  int end = 0;
  first_ = input.units.empty() ? 0 : input.units.front().begin;
  for (const UnitRange& range : input.units) {
    first_ = std::min(first_, range.begin);
    end = std::max(end, range.end);
  }
  where_.assign(static_cast<std::size_t>(std::max(0, end - first_) * input.microbatches),
                Where::nowhere);
}

CopyProof::Where& CopyProof::where(int unit, int microbatch) {
  return at(where_, (unit - first_) * input_.microbatches + microbatch);
}

void CopyProof::check(const Action& row) {
  if (is_pass(row.kind)) {
    for (int unit = row.begin; unit < row.end; ++unit) {
      if (input_.forms.on_host(unit)) pass(row, unit);
    }
  }
  if (is_host_copy(row.kind) && !input_.forms.on_host(row.begin)) {
    return fail_("unit " + std::to_string(row.begin) + " is not kept on the host");
  }
  switch (row.kind) {
    case ActionKind::offload:
      return move(row, Where::made, Where::leaving, "must come once, after F");
    case ActionKind::wait_offload:
      return move(row, Where::leaving, Where::away, "no copy to the host is under way");
    case ActionKind::reload: return move(row, Where::away, Where::coming, "it is not on the host");
    case ActionKind::wait_reload:
      return move(row, Where::coming, Where::back, "no copy from the host is under way");
    default: return;
  }
}

void CopyProof::pass(const Action& row, int unit) {
  Where& now = where(unit, row.microbatch);
  if (row.kind == ActionKind::forward) {
    if (runs(row.leg, Leg::home)) now = Where::made;
  } else if (now != Where::back) {
    fail_("reads what unit " + std::to_string(unit) + " keeps on the host before wait_reload");
  }
}

void CopyProof::move(const Action& row, Where from, Where to, const char* otherwise) {
  Where& now = where(row.begin, row.microbatch);
  if (now != from) fail_(otherwise);
  now = to;
}

void CopyProof::finish() {
  const auto under_way = [](Where place) {
    return place == Where::leaving || place == Where::coming;
  };
  if (std::any_of(where_.begin(), where_.end(), under_way)) fail_("nobody waited for a host copy");
}

}  // namespace trainctl
