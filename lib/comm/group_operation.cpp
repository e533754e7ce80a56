#include "comm/group_operation.h"

namespace trainctl {

const char* name_of(GroupOperation operation) {
  switch (operation) {
    case GroupOperation::all_reduce: return "all_reduce";
    case GroupOperation::reduce_scatter: return "reduce_scatter";
    case GroupOperation::all_gather: return "all_gather";
    case GroupOperation::broadcast: return "broadcast";
    case GroupOperation::all_to_all: return "all_to_all";
    case GroupOperation::send: return "send";
    case GroupOperation::receive: return "receive";
    case GroupOperation::barrier: return "barrier";
  }
  return "";
}

}  // namespace trainctl
