#!/usr/bin/env bash
# Measures this machine as cluster.device, and then 40 configurations, which it compares with their plans by that file: of one rank and of two,
# which are threads. Then GPT-2 124M in each layout of two ranks: how much slower the one with the least planned time
# is than the fastest. Two cores take about seven minutes, in which nothing else may run.
#   scripts/own_steps.sh [--seconds N] [--only steps|layouts] [--device FILE] [BUILD_DIR]
#   --seconds N     for measuring the machine, twice; default 45
#   --device FILE   measured before by two ranks; default: measured now
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=45 only=all device='' build=build/release
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --only) only=${2:?--only needs steps or layouts}; shift ;;
    --device) device=$(realpath "${2:?--device needs a file}"); shift ;;
    -*) sed -n '2,7s/^# *//p' "$0" >&2; exit 64 ;;
    *) build=$1 ;;
  esac
  shift
done
program=$PWD/$build/bin/trainctl
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# run NAME COMMAND...: its output in $work/NAME; ends the script with what it said where it fails.
run() {
  local name=$1
  shift
  "$@" >"$work/$name" 2>"$work/errors" && return
  echo "own_steps: this failed: $*" >&2
  cat "$work/$name" "$work/errors" >&2
  exit 1
}

# The file of this machine with the given number of ranks, in $own.
measure_machine() {
  local ranks=()
  own=${device:-$work/own$1.yaml}
  [ -z "$device" ] && [ ! -f "$own" ] || return 0
  [ "$1" = 1 ] || ranks=(--local-ranks "$1")
  run bench "$program" bench device --config configs/gpt.yaml --seconds "$seconds" --save "$own" "${ranks[@]}"
  cat "$work/bench"
}

# A step of $1 ranks with the options behind: $planned and $measured, with the units of the program, and $off in %.
step_of() {
  local ranks=() count=$1 line
  shift
  [ "$count" = 1 ] || ranks=(--local-ranks "$count" --world-size "$count")
  run step "$program" plan --set cluster.device="$own" --measure "${ranks[@]}" "$@"
  line=$(sed -n 's/^the step: planned \(.*\), measured \(.*\): \([-+0-9.]*\) %$/\1|\2|\3/p' "$work/step")
  [ -n "$line" ] || { echo "own_steps: no planned and measured step in:" >&2; cat "$work/step" >&2; exit 1; }
  IFS='|' read -r planned measured off <<<"$line"
}

# Mean and largest of the errors in $work/off, of which there is one a line.
show_errors() {
  awk -v what="$1" '{ x = $1 < 0 ? -$1 : $1; sum += x; if (x > most) most = x }
    END { printf "%d %s: mean error %.1f %%, most %.1f %%\n", NR, what, sum / NR, most }' "$work/off"
  rm "$work/off"
}

# Seconds of "1.2 ms".
in_seconds() { awk '{ print $1 * ($2 == "us" ? 1e-6 : $2 == "ms" ? 1e-3 : 1) }' <<<"$1"; }

show_steps() {
  local ranks family size length layers hidden
  for ranks in 1 2; do
    measure_machine $ranks
    for family in gpt2 llama; do
      for size in "2 128" "4 256" "2 384" "4 512" "2 768"; do
        for length in 128 512; do
          read -r layers hidden <<<"$size"
          step_of $ranks --config configs/tiny.yaml \
            --set model.family=$family --set model.num_layers="$layers" --set model.hidden_size="$hidden" \
            --set model.num_attention_heads=$((hidden / 64)) --set model.seq_length=$length \
            --set model.vocab_size=4096 --set train.global_batch_size=4 --set train.micro_batch_size=1
          printf '%d ranks  %-6s %d layers of %4d, %3d tokens: planned %10s, measured %10s  %+6.1f %%\n' \
            $ranks $family "$layers" "$hidden" $length "$planned" "$measured" "$off"
          echo "$off" >>"$work/off"
        done
      done
    done
  done
  show_errors steps
}

show_layouts() {
  local best_planned='' chosen='' fastest='' layout
  local p=--set\ parallel
  local layouts=(
    "" "$p.parallel_optimizer.enable=true" "$p.parallel_optimizer.enable=true $p.parallel_optimizer.optimizer_level=level3"
    "$p.tensor_parallel=2" "$p.tensor_parallel=2 $p.sequence_parallel=true" "$p.context_parallel=2"
    "$p.pipeline_stages=2" "$p.pipeline_stages=2 $p.pipeline.scheduler=zb-h1" "$p.pipeline_stages=2 $p.virtual_pipeline_stages=2")
  measure_machine 2
  for layout in "${layouts[@]}"; do
    # shellcheck disable=SC2086
    step_of 2 --config configs/gpt2-124m.yaml --set model.seq_length=256 --set train.global_batch_size=4 \
      --set train.micro_batch_size=1 $layout
    printf '%-90s planned %10s, measured %10s  %+6.1f %%\n' "${layout:-two replicas}" "$planned" "$measured" "$off"
    echo "$off" >>"$work/off"
    planned=$(in_seconds "$planned")
    measured=$(in_seconds "$measured")
    if [ -z "$best_planned" ] || awk "BEGIN { exit !($planned < $best_planned) }"; then
      best_planned=$planned chosen=$measured
    fi
    if [ -z "$fastest" ] || awk "BEGIN { exit !($measured < $fastest) }"; then fastest=$measured; fi
  done
  show_errors layouts
  awk -v c="$chosen" -v f="$fastest" 'BEGIN { printf "the layout with the least planned time is %.1f %% slower than the fastest\n", 100 * (c / f - 1) }'
}

[ "$only" = layouts ] || show_steps
[ "$only" = steps ] || show_layouts
echo "$SECONDS s"
