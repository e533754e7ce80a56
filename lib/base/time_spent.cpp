#include "base/time_spent.h"

namespace trainctl {

namespace {
thread_local TimeSpent spent;
}

TimeSpent& time_spent() { return spent; }

}  // namespace trainctl
