#!/usr/bin/env bash
# Measures how long 8 MPI ranks take to finish the first step of a small model, alternating with an
# empty program of 8 ranks. Also measures validate, and plan for 16,384 ranks.
#   scripts/bench_startup.sh [BUILD_DIR] [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
rounds=${2:-5}
ranks=8
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --build "$build" --target trainctl empty_mpi >/dev/null
trainctl=$build/bin/trainctl
empty=$(find "$build" -name empty_mpi -type f -perm -u+x | head -n 1)
launch=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  mpirun -n "$ranks" --oversubscribe --bind-to none)
cat /usr/share/common-licenses/GPL-3 >"$work/text.txt"

config=(--config configs/gpt.yaml --set "data.train=$work/text.txt"
  --set "data.cache_dir=$work/cache" --set output.overwrite=true --set output.save_weights=false --set checkpoint.at_end=false
  --set data.validation.fraction=0 --set data.validation.split=tail --set train.validate_every=0
  --set lr_schedule.warmup_steps=0)
step=("$trainctl" train "${config[@]}" --steps 1 --output "$work/run")

# Prints the milliseconds of one run of "$@". Its output goes to a file, shown if it fails.
milliseconds() {
  local begin end
  begin=$(date +%s%N)
  "$@" >"$work/out" 2>&1 || { cat "$work/out" >&2; return 1; }
  end=$(date +%s%N)
  echo $(((end - begin) / 1000000))
}

median() { sort -n | awk '{a[NR] = $1} END {print a[int((NR + 1) / 2)]}'; }

"${launch[@]}" "${step[@]}" >/dev/null 2>&1 || true # tokenises the text
for ((round = 0; round < rounds; ++round)); do
  a=$(milliseconds "${launch[@]}" "$empty")
  b=$(milliseconds "${launch[@]}" "${step[@]}")
  echo "$a" >>"$work/empty"
  echo "$b" >>"$work/step"
  echo $((b - a)) >>"$work/more"
  milliseconds "$trainctl" validate --config configs/gpt.yaml >>"$work/validate"
  milliseconds "$trainctl" plan --config configs/llama3-8b.yaml --world-size 16384 \
    --set train.global_batch_size=16384 >>"$work/plan"
done

echo "$ranks ranks, empty program        $(median <"$work/empty") ms"
echo "$ranks ranks, a run of one step    $(median <"$work/step") ms"
echo "difference                     $(median <"$work/more") ms (aim: < 700)"
echo "validate                       $(median <"$work/validate") ms (aim: < 50)"
echo "plan for 16,384 ranks          $(median <"$work/plan") ms (aim: < 1000)"
