#!/usr/bin/env bash
# Compiles each source of lib and apps alone, as the preset debug does but without code: finds headers that a file
# does not include itself, and shadowed names (-Wshadow), both of which the other presets, which compile the files
# of a library together, do not see.
#   scripts/check_sources.sh           all sources
#   scripts/check_sources.sh REGEX     those whose path matches
#   scripts/check_sources.sh --recent  those that commits of the last four hours up to the last commit changed, and those
#                                      that include a header that changed; all where git does not know so far back.
#                                      Lines that are only a comment do not count
set -uo pipefail
cd "$(dirname "$0")/.." || exit
build=build/sources
mkdir -p "$build"

# A regular expression of the sources that changed in the four hours up to the last commit, or include a header
# that did.
recent() {
  local last since paths
  last=$(git log -1 --format=%ct 2>/dev/null) || { echo .; return; }
  since=$((last - 4 * 3600))
  # A clone that is cut off within these hours does not know all that changed in them.
  if [ "$(git rev-parse --is-shallow-repository)" = true ]; then echo .; return; fi
  # Renames are told as a file that goes and one that comes, so that each name stands alone on its line.
  git log --since="@$since" --numstat --no-renames -I '^ *//' --format= -- lib apps |
    awk '$1 + $2 > 0 { print $NF }' | sort -u >"$build/changed"
  paths=$({
    grep '\.cpp$' "$build/changed"
    sed -nE "s/^(lib|apps\/[^\/]*)\/(.*\.h)\$/#include \"\2\"/p" "$build/changed" >"$build/includes"
    if [ -s "$build/includes" ]; then grep -rlFf "$build/includes" lib apps --include=*.cpp; fi
  } | sort -u | sed 's/[.+]/\\&/g' | paste -sd '|')
  echo "/(${paths:-none})$"
}

case ${1:-} in
  --recent) pattern=$(recent) ;;
  *) pattern=${1:-.} ;;
esac
cmake --preset debug -B "$build" -DTRAINCTL_CUDA=OFF -DTRAINCTL_CCACHE= >"$build/configure.log" ||
  { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --target trainctl_strategy_proto >"$build/generate.log" || { cat "$build/generate.log"; exit 1; }
mapfile -t commands < <(sed -n 's/^  "command": "\(.*\)",$/\1/p' "$build/compile_commands.json" | sed 's/\\\(.\)/\1/g' |
  grep -E -- "-c $PWD/(lib|apps)/" | awk -v pattern="$pattern" '$NF ~ pattern')
echo "check_sources: ${#commands[@]} files"
if [ ${#commands[@]} -eq 0 ]; then
  [ "${1:-}" = --recent ]
  exit
fi
start=$SECONDS
# Each line: the compiler and its flags, then -o OBJECT -c SOURCE.
printf '%s\n' "${commands[@]}" | sed -E 's/ -o [^ ]+ -c / -fsyntax-only /' |
  xargs -d '\n' -n 1 -P "$(nproc)" bash -c
code=$?
echo "check_sources: $([ $code -eq 0 ] && echo passed || echo FAILED) ($((SECONDS - start)) s)"
[ $code -eq 0 ]
