#include "comm/collective_call.h"

namespace trainctl {

const char* name_of(Collective operation) {
  switch (operation) {
    case Collective::all_reduce: return "all_reduce";
    case Collective::reduce_scatter: return "reduce_scatter";
    case Collective::all_gather: return "all_gather";
    case Collective::broadcast: return "broadcast";
    case Collective::all_to_all: return "all_to_all";
    case Collective::barrier: return "barrier";
  }
  return "";
}

std::string to_string(const CollectiveCall& call) {
  std::string text = name_of(call.operation);
  if (call.operation != Collective::barrier && call.operation != Collective::all_to_all) {
    text += " of " + std::to_string(call.bytes) + " bytes";
  }
  if (call.operation != Collective::barrier) text += " of " + std::string(name_of(call.dtype));
  if (call.root >= 0) text += " from rank " + std::to_string(call.root) + " of it";
  return text + " as call " + std::to_string(call.number);
}

}  // namespace trainctl
