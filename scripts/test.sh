#!/usr/bin/env bash
# Installs the packages, builds everything and runs every test: all tests in the release preset, then the
# unit tests with the address and undefined-behaviour sanitizers and with the thread sanitizer. Uses
# no network except apt. Takes about half an hour on two cores; later runs rebuild only what changed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
start=$SECONDS
summary=()
failed=()
mkdir -p build

# ctest prints to the terminal and to a log; the summary takes its counts from the log.
run_preset() {
  local preset=$1 log="build/ctest-$1.log"
  local launcher=()
  # The thread sanitizer of older compilers does not start with many bits of address randomisation.
  if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
    launcher=(setarch "$(uname -m)" -R)
  fi
  echo "test: preset $preset"
  if ! scripts/build.sh "$preset"; then
    failed+=("$preset (build)")
    return
  fi
  "${launcher[@]}" ctest --preset "$preset" 2>&1 | tee "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed+=("$preset")
  summary+=("$preset: $(sed -n 's/^[0-9]*% tests passed, \(.*\)$/\1/p' "$log" | tail -n 1)")
}

scripts/install.sh || exit $?
for preset in release asan tsan; do run_preset "$preset"; done

printf 'test: %s\n' "${summary[@]}"
minutes=$(((SECONDS - start + 59) / 60))
if [ ${#failed[@]} -gt 0 ]; then
  echo "test: FAILED in ${failed[*]} (${minutes} min)"
  exit 1
fi
echo "test: everything passed (${minutes} min)"
