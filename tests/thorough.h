// How much a test tries. Every kind of case is in the default run; scripts/test.sh --thorough sets
// TRAINCTL_THOROUGH=1 for the full sweeps of sizes, seeds and combinations.
#pragma once

/// Whether TRAINCTL_THOROUGH is set, to other than 0.
bool thorough();

/// Whether a sanitizer watches this build. It needs each kind of code once; that numbers are right
/// the release build has shown.
bool watched();

/// Of many cases of one kind: 1 if all are run, else every which one.
inline int stride(int by_default) { return thorough() ? 1 : by_default * (watched() ? 8 : 1); }

/// How many of something random a test tries.
inline int tries(int by_default, int thoroughly) {
  return thorough() ? thoroughly : watched() ? (by_default + 3) / 4 : by_default;
}
