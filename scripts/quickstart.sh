#!/usr/bin/env bash
# From a fresh machine to a trained model: installs packages, builds trainctl, trains a small model
# over 2 MPI ranks and prints a text that the model wrote. Takes under ten minutes on two cores. Safe
# to rerun: finished installation and build steps are skipped, and the model is trained again.
#   scripts/quickstart.sh          trains on the licence texts of this system
#   scripts/quickstart.sh FILE     trains on FILE (text, at least 100 KB)
set -euo pipefail
text=${1:-}
[ -z "$text" ] || text=$(realpath -- "$text")
cd "$(dirname "$0")/.."
if [ -n "$text" ] && [ ! -r "$text" ]; then
  echo "quickstart: cannot read $text" >&2
  exit 66
fi

echo "quickstart 1/4: packages"
scripts/install.sh

echo "quickstart 2/4: build"
scripts/build.sh release trainctl
trainctl=build/release/bin/trainctl

echo "quickstart 3/4: train over 2 MPI ranks"
options=()
[ -z "$text" ] || options=(--set "data.train=$text")
# Allow root, as in a container. Ranks may share cores and are not bound to one. A rerun replaces the run.
mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 \
  "$trainctl" train --config configs/quickstart.yaml --overwrite "${options[@]}"

echo "quickstart 4/4: a sample"
prompt="This license "
[ -z "$text" ] || prompt=$(head -c 40 -- "$text" | tr -d '\0')
"$trainctl" generate --run runs/quickstart --prompt "$prompt" --max-tokens 400 \
  --temperature 0.7 --seed 1

echo
echo "quickstart: done. Next: run $trainctl --help, or edit configs/quickstart.yaml and rerun this script."
