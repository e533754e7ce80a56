#include "comm/host/collective_call.h"

namespace trainctl {

std::string to_string(const CollectiveCall& call) {
  std::string text = name_of(call.operation);
  if (call.operation != GroupOperation::barrier && call.operation != GroupOperation::all_to_all) {
    text += " of " + std::to_string(call.bytes) + " bytes";
  }
  if (call.operation != GroupOperation::barrier) text += " of " + std::string(name_of(call.dtype));
  if (call.root >= 0) text += " from rank " + std::to_string(call.root) + " of the group";
  return text + " as call " + std::to_string(call.number);
}

}  // namespace trainctl
