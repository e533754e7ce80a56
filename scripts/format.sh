#!/usr/bin/env bash
# Formats every C++ and CUDA source with clang-format and .clang-format.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -z '*.cpp' '*.h' '*.cu' | xargs -0 clang-format -i
