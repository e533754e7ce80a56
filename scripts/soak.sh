#!/usr/bin/env bash
# Runs in eight layouts, killed at random moments and with disks that fail, started twice and taken over by
# another host: nothing that a run has saved is lost, and the same command resumes the run.
#   scripts/soak.sh               8 kills and 8 faults: a minute
#   scripts/soak.sh --thorough    300 kills and 150 faults
set -euo pipefail
cd "$(dirname "$0")/.."
case "$*" in
  "") ;;
  --thorough) export TRAINCTL_THOROUGH=1 ;;
  *)
    echo "usage: scripts/soak.sh [--thorough]" >&2
    exit 64
    ;;
esac
scripts/build.sh release
exec build/release/bin/test_soak "[soak]"
