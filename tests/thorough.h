// How much a test tries. Every kind of case is in the default run; scripts/test.sh --thorough sets
// TRAINCTL_THOROUGH=1 for the full sweeps of sizes, seeds and combinations.
#pragma once

/// Whether TRAINCTL_THOROUGH is set, to other than 0.
bool thorough();

/// How many of something random a test tries.
inline int tries(int by_default, int thoroughly) { return thorough() ? thoroughly : by_default; }
