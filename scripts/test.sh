#!/usr/bin/env bash
# Installs the packages, builds everything and runs the tests: all tests in the release preset, then unit
# tests with the address and undefined-behaviour sanitizers and with the thread sanitizer. Uses no network
# except apt. Later runs rebuild only what changed.
#   scripts/test.sh               every kind of case
#   scripts/test.sh --thorough    also every size and seed, every check of the sanitizers, a browser and
#                                 scripts/check_*.sh
set -uo pipefail
cd "$(dirname "$0")/.." || exit
start=$SECONDS
summary=()
failed=()
times=()
thorough=()
presets=(release asan tsan)
case "$*" in
  "") ;;
  --thorough)
    thorough=(--thorough)
    presets=(release asan-every tsan-every)
    export TRAINCTL_THOROUGH=1
    ;;
  *)
    echo "usage: scripts/test.sh [--thorough]" >&2
    exit 64
    ;;
esac
mkdir -p build
rm -f build/ctest-*.log

# lap NAME START: records the time since START ($SECONDS then) under NAME.
lap() { times+=("$(printf '%-24s %5d s' "$1" $((SECONDS - $2)))"); }

# ctest prints to the terminal and to a log; the summary takes its counts from the log.
run_preset() {
  local preset=$1 log="build/ctest-$1.log" begin=$SECONDS
  local launcher=()
  # The thread sanitizer of older compilers does not start with many bits of address randomisation.
  if [[ $preset == tsan* ]] && setarch "$(uname -m)" -R true 2>/dev/null; then
    launcher=(setarch "$(uname -m)" -R)
  fi
  echo "test: preset $preset"
  if ! scripts/build.sh "$preset"; then
    failed+=("$preset (build)")
    return
  fi
  lap "$preset: build" "$begin"
  begin=$SECONDS
  "${launcher[@]}" ctest --preset "$preset" 2>&1 | tee "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed+=("$preset")
  lap "$preset: tests" "$begin"
  summary+=("$preset: $(sed -n 's/^[0-9]*% tests passed, \(.*\)$/\1/p' "$log" | tail -n 1)")
}

# The ten tests that took longest, from lines of ctest such as
#  3/40 Test  #5: plan ..........   Passed    1.20 sec
slowest() {
  local log preset
  for log in build/ctest-*.log; do
    preset=${log#build/ctest-}
    sed -n -E "s/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec *$/\2 ${preset%.log}: \1/p" "$log"
  done | sort -rn | head -n 10 |
    while read -r seconds name; do printf 'test: %-32s %7.1f s\n' "$name" "$seconds"; done
}

# Without a device one architecture is enough, and compiles in a third of the time.
command -v nvidia-smi >/dev/null || export CUDAARCHS=${CUDAARCHS:-90a-real}
scripts/install.sh "${thorough[@]}" || exit $?
lap packages "$start"
for preset in "${presets[@]}"; do run_preset "$preset"; done
if [ ${#thorough[@]} -gt 0 ]; then
  for check in scripts/check_*.sh; do
    [ -x "$check" ] || continue
    begin=$SECONDS
    "$check" || failed+=("$check")
    lap "$(basename "$check")" "$begin"
  done
fi

cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
for level in amx_bf16 avx512_bf16 avx512f avx2 other; do
  grep -qw "$level" /proc/cpuinfo && break
done
echo "test: where the time went, on ${cpu:-an unnamed CPU} ($level) with $(nproc) cores"
printf 'test: %s\n' "${times[@]}"
echo "test: the slowest tests"
slowest
printf 'test: %s\n' "${summary[@]}"
minutes=$(((SECONDS - start + 59) / 60))
if [ ${#failed[@]} -gt 0 ]; then
  echo "test: FAILED in ${failed[*]} (${minutes} min)"
  exit 1
fi
echo "test: everything passed (${minutes} min)"
