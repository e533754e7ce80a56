#!/usr/bin/env bash
# Plants faults in a clone of the last commit, builds it, runs trainctl verify with each of them and says whether
# a first line names the right place.
#   tests/verify/faults.sh [--clone DIR] [FAULT...]
#   --clone DIR   where the clone lies and is built; default: build/faults
#   FAULT...      their numbers; default: all that change a number. Those take some hours of two processors
# faults.patch plants them, each behind a number in TRAINCTL_FAULT. faults.csv has for each the kind of command and the
# file of configs/ that show it, what this needs, and place: words of which a first line must hold one; `and` joins
# words that must both be there. Exits with 1 if a fault is not named.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
here=$root/tests/verify
clone=$root/build/faults
wanted=()
while [ $# -gt 0 ]; do
  case $1 in
    --clone) clone=${2:?--clone needs a directory}; shift ;;
    *[!0-9]*) sed -n '2,9s/^# *//p' "$here/faults.sh" >&2; exit 64 ;;
    *) wanted+=("$1") ;;
  esac
  shift
done

[ -d "$clone/.git" ] || git clone --quiet "$root" "$clone"
cd "$clone"
git fetch --quiet "$root" HEAD
git reset --quiet --hard FETCH_HEAD
git apply "$here/faults.patch"
scripts/build.sh release trainctl

# The documented commands of a kind, one a line: $1 kind, $2 file of configs/, $3 precision.
commands_of() {
  local verify="build/release/bin/trainctl verify --config configs/verify-$2.yaml"
  local quick="$verify --world-size 4 --layouts quick"
  case $1 in
    layouts)
      [ "$3" = fp32 ] || echo "$quick --set precision.compute=$3"
      echo "$quick --options quick" ;;
    checkpoint) echo "$quick --options quick --through-checkpoint" ;;
    mpi) echo "mpirun --oversubscribe --allow-run-as-root -x TRAINCTL_FAULT -n 4 $verify --layouts quick" ;;
  esac
}

# Whether line $1 holds the place $2.
holds() {
  local alternative word
  local -a alternatives
  IFS='|' read -ra alternatives <<<"$2"
  for alternative in "${alternatives[@]}"; do
    while [[ $alternative == *" and "* ]]; do
      word=${alternative%% and *}
      [[ $1 == *"$word"* ]] || continue 2
      alternative=${alternative#* and }
    done
    [[ $1 == *"$alternative"* ]] && return 0
  done
  return 1
}

named=0
count=0
output=$(mktemp)
trap 'rm -f "$output"' EXIT
export TRAINCTL_FAULT
while IFS= read -r row; do
  IFS=, read -r TRAINCTL_FAULT today precision command file rest <<<"$row"
  place=${rest##*,}
  case $today in fault | none | exempt) continue ;; esac
  [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $TRAINCTL_FAULT "* ]] || continue
  count=$((count + 1))
  verdict=equal
  shown=
  while IFS= read -r line && [ $verdict != named ]; do
    code=0
    # shellcheck disable=SC2086
    timeout 900 $line >"$output" 2>&1 </dev/null || code=$?
    [ $code -eq 0 ] || [ $code -eq 71 ] || { verdict="exit $code"; shown=$(tail -n 1 "$output"); }
    while IFS= read -r first; do
      verdict=elsewhere
      shown=${first#*first: }
      if holds "$first" "$place"; then
        verdict=named
        break
      fi
    done < <(grep -E 'first:|are never reduced' "$output")
  done < <(commands_of "$command" "$file" "${precision##* }")
  [ $verdict != named ] || named=$((named + 1))
  printf '%4s  %-10s  %s\n' "$TRAINCTL_FAULT" "$verdict" "$shown"
done <"$here/faults.csv"
echo "$named of $count named"
[ $named -eq $count ]
