#!/usr/bin/env bash
# Compiles the sources that need no other library for 64-bit Arm: base, config's rules, plan and the plain kernels.
# Skipped if the cross compiler is missing.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
compiler=aarch64-linux-gnu-g++
command -v $compiler > /dev/null || { echo "check_aarch64: skipped, no $compiler (package g++-aarch64-linux-gnu)"; exit 0; }
failed=0
count=0
# The fast CPU kernels are for x86-64, and these headers belong to libraries.
libraries='<(mpi|nccl|cuda|yaml-cpp/|spdlog/|nlohmann/|oneapi/|sentencepiece|google/|CLI/)|\.pb\.h"'
while read -r source; do
  grep -qE "#include $libraries" "$source" && continue
  count=$((count + 1))
  $compiler -std=c++20 -fopenmp -fsyntax-only -Wall -Wextra -Werror -Wno-restrict -Ilib "$source" \
    || { echo "check_aarch64: FAILED: $source"; failed=1; }
done < <(find lib/base lib/config lib/device lib/ops lib/plan -name '*.cpp' -not -path 'lib/ops/cpu/*' \
         -not -path '*cuda*' | sort)
[ $failed -eq 0 ] && echo "check_aarch64: $count sources compile"
exit $failed
