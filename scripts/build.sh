#!/usr/bin/env bash
# Builds a preset (CMakePresets.json) into build/PRESET:  scripts/build.sh [PRESET [TARGET...]]
# Without arguments: everything of the release preset. Only what changed is built again.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
shift || true
targets=()
[ $# -eq 0 ] || targets=(--target "$@")

echo "build: preset $preset${*:+, target $*}, into build/$preset"
cmake --preset "$preset" -Wno-dev >"/dev/null" || {
  echo "build: configuring failed; is everything installed? (scripts/install.sh)" >&2
  exit 1
}
cmake --build --preset "$preset" "${targets[@]}"
