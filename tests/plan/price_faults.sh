#!/usr/bin/env bash
# Plants faults in prices and in the search by them in a clone of the last commit, builds its tests of plans, and says
# whether each fault makes the test fail that is named for it.
#   tests/plan/price_faults.sh [--clone DIR] [FAULT...]
#   --clone DIR   where the clone lies and is built; default: build/price-faults
#   FAULT...      their numbers; default: all
# price_faults.patch plants them, each behind a number in TRAINCTL_FAULT; price_faults.csv has the test of each and its
# program. Exits with 1 if a fault is not found, or if a test fails without it.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
here=$root/tests/plan
clone=$root/build/price-faults
wanted=()
while [ $# -gt 0 ]; do
  case $1 in
    --clone) clone=${2:?--clone needs a directory}; shift ;;
    *[!0-9]*) sed -n '2,8s/^# *//p' "$here/price_faults.sh" >&2; exit 64 ;;
    *) wanted+=("$1") ;;
  esac
  shift
done

# rows: those of the faults that are wanted, as "FAULT,PROGRAM,TEST".
rows() {
  while IFS=, read -r fault rest; do
    [ "$fault" != fault ] || continue
    [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $fault "* ]] || continue
    echo "$fault,$rest"
  done <"$here/price_faults.csv"
}

[ -d "$clone/.git" ] || git clone --quiet "$root" "$clone"
cd "$clone"
git fetch --quiet "$root" HEAD
git reset --quiet --hard FETCH_HEAD
git apply "$here/price_faults.patch"
mapfile -t programs < <(rows | cut -d, -f2 | sort -u)
[ ${#programs[@]} -gt 0 ] || { echo "price_faults.csv has none of these faults" >&2; exit 64; }
scripts/build.sh release "${programs[@]}"

found=0
count=0
while IFS=, read -r fault program test; do
  count=$((count + 1))
  tests=build/release/bin/$program
  name=${test//,/\\,}
  verdict=found
  "$tests" "$name" >/dev/null || verdict="fails without it"
  [ "$verdict" != found ] || ! TRAINCTL_FAULT=$fault "$tests" "$name" >/dev/null || verdict="not found"
  [ "$verdict" != found ] || found=$((found + 1))
  printf '%4s  %-16s  %s\n' "$fault" "$verdict" "$test"
done < <(rows)
echo "$found of $count found"
[ $found -eq $count ]
