#include "comm/collective_call.h"

namespace trainctl {

const char* name_of(CollectiveKind operation) {
  switch (operation) {
    case CollectiveKind::all_reduce: return "all_reduce";
    case CollectiveKind::reduce_scatter: return "reduce_scatter";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::broadcast: return "broadcast";
    case CollectiveKind::all_to_all: return "all_to_all";
    case CollectiveKind::barrier: return "barrier";
  }
  return "";
}

std::string to_string(const CollectiveCall& call) {
  std::string text = name_of(call.operation);
  if (call.operation != CollectiveKind::barrier && call.operation != CollectiveKind::all_to_all) {
    text += " of " + std::to_string(call.bytes) + " bytes";
  }
  if (call.operation != CollectiveKind::barrier) text += " of " + std::string(name_of(call.dtype));
  if (call.root >= 0) text += " from rank " + std::to_string(call.root) + " of it";
  return text + " as call " + std::to_string(call.number);
}

}  // namespace trainctl
