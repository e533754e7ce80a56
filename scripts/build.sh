#!/usr/bin/env bash
# Builds a preset (CMakePresets.json) into build/PRESET:  scripts/build.sh [PRESET [TARGET...]]
# Without arguments, builds everything in the release preset. Rebuilds only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
shift || true
targets=()
[ $# -eq 0 ] || targets=(--target "$@")

echo "build: preset $preset${*:+, target $*}, into build/$preset"
cmake --preset "$preset" -Wno-dev >"/dev/null" || {
  echo "build: CMake failed; run scripts/install.sh to install missing packages" >&2
  exit 1
}
cmake --build --preset "$preset" "${targets[@]}"
