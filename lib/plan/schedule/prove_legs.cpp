#include "plan/schedule/prove_legs.h"

namespace trainctl {

bool LegProof::completes(const Action& row) {
  Open& open = open_[row.kind == ActionKind::forward ? 0 : 1];
  if (row.leg == Leg::whole || row.leg == Leg::out) {
    if (open.any) fail_("begins before the next leg of " + to_string(open.last));
  } else {
    Action before = row;
    before.leg = row.leg == Leg::work ? Leg::out : Leg::work;
    if (!open.any || !(open.last == before)) fail_("must come after " + to_string(before));
  }
  if (row.leg != Leg::whole && row.end != row.begin + 1) fail_("a leg is of one unit");
  open = {row.sends_rows(), row};
  return !open.any;
}

void LegProof::finish() const {
  for (const Open& open : open_) {
    if (open.any) fail_("the next leg of " + to_string(open.last) + " never comes");
  }
}

}  // namespace trainctl
