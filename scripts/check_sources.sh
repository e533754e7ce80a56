#!/usr/bin/env bash
# Compiles each source of lib and apps alone, as the preset debug does but without code: finds headers that a file
# does not include itself, and shadowed names (-Wshadow), both of which the other presets, which compile the files
# of a library together, do not see. usage: check_sources.sh [REGEX of paths, default all]
set -uo pipefail
cd "$(dirname "$0")/.." || exit
pattern=${1:-.}
build=build/sources
mkdir -p "$build"
cmake --preset debug -B "$build" -DTRAINCTL_CUDA=OFF -DTRAINCTL_CCACHE= >"$build/configure.log" ||
  { cat "$build/configure.log"; exit 1; }
cmake --build "$build" --target trainctl_strategy_proto >"$build/generate.log" || { cat "$build/generate.log"; exit 1; }
mapfile -t commands < <(sed -n 's/^  "command": "\(.*\)",$/\1/p' "$build/compile_commands.json" | sed 's/\\\(.\)/\1/g' |
  grep -E -- "-c $PWD/(lib|apps)/" | grep -E -- "-c $PWD/[^ ]*($pattern)")
echo "check_sources: ${#commands[@]} files"
[ ${#commands[@]} -gt 0 ] || exit 1
start=$SECONDS
# Each line: the compiler and its flags, then -o OBJECT -c SOURCE.
printf '%s\n' "${commands[@]}" | sed -E 's/ -o [^ ]+ -c / -fsyntax-only /' |
  xargs -d '\n' -n 1 -P "$(nproc)" bash -c
code=$?
echo "check_sources: $([ $code -eq 0 ] && echo passed || echo FAILED) ($((SECONDS - start)) s)"
[ $code -eq 0 ]
