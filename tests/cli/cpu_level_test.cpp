// The CPU level of the environment is checked before anything starts.
#include "catch.h"
#include "process.h"

TEST_CASE("an unknown CPU level is refused") {
  const Outcome outcome = trainctl({"--version"}, {"TRAINCTL_CPU_LEVEL=sse9"});
  CHECK(outcome.exit_code == 69);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "TRAINCTL_CPU_LEVEL: unknown level \"sse9\"; this machine has: "));
}
