#!/usr/bin/env bash
# Checks the CUDA part on this machine and measures it: the tests for devices, compute-sanitizer on a short
# set, verify on one device and on all, a run, and the benchmarks. Writes one text report. Downloads
# nothing. Each section has its own time limit, and is skipped with a reason where it cannot run; all end
# within the seconds given. It runs from a bundle (scripts/bundle.sh) and from the source tree.
#   gpu_check.sh [--seconds N] [--output FILE] [--only PATTERN]     default: 520 seconds, gpu_report.txt
# PATTERN is an extended regular expression: only sections with such names. TRAINCTL_BUILD is the build folder of a
# source tree, TRAINCTL_GPU_CHECK_SMALL=1 means small sizes, for slow devices.
# TRAINCTL_CUDA_MODULE names another module. Exit code: 1 if a section failed, else 0.
set -uo pipefail
seconds=520
output=gpu_report.txt
only=.
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --output) output=${2:?--output needs a file}; shift ;;
    --only) only=${2:?--only needs a pattern}; shift ;;
    *) sed -n '6s/^# *//p' "$0" >&2; exit 64 ;;
  esac
  shift
done
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
if [ -x "$here/../../bin/trainctl" ]; then # a bundle: share/trainctl/gpu_check.sh
  root=$(cd "$here/../.." && pwd)
  program=$root/bin/trainctl checks=$root/checks configs=$root/share/trainctl/configs
else
  root=$(cd "$here/.." && pwd)
  program=${TRAINCTL_BUILD:-$root/build/release}/bin/trainctl configs=$root/configs
  checks=$(dirname "$program")
fi
module=${TRAINCTL_CUDA_MODULE:-$(ls "$root/lib/libtrainctl_cuda.so" "$(dirname "$program")/libtrainctl_cuda.so" 2>/dev/null | head -n 1)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
begin=$SECONDS
: >"$output" || exit 74
say() { printf '%s\n' "$*" | tee -a "$output"; }
left() { echo $((seconds - SECONDS + begin)); }

passed=0 failed=0 skipped=0
skip() {
  grep -qE -- "$only" <<<"$1" || return
  say "== $1: SKIPPED: $2"
  skipped=$((skipped + 1))
}
# section NAME LIMIT COMMAND...: runs it, at most LIMIT seconds and what is left; its output goes into the report.
section() {
  local name=$1 limit=$2 start=$SECONDS code
  shift 2
  grep -qE -- "$only" <<<"$name" || return
  [ "$(left)" -ge "$limit" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then
    skip "$name" "no time left of $seconds s"
    return
  fi
  say "== $name"
  timeout --kill-after=5 "$limit" "$@" >"$work/out" 2>&1 </dev/null
  code=$?
  cut -c 1-240 "$work/out" | tail -n "${lines:-40}" | tee -a "$output"
  case $code in
    0) say "== $name: passed, $((SECONDS - start)) s"; passed=$((passed + 1)) ;;
    124 | 137) say "== $name: FAILED: did not end within $limit s"; failed=$((failed + 1)) ;;
    *) say "== $name: FAILED: exit code $code, $((SECONDS - start)) s"; failed=$((failed + 1)) ;;
  esac
  return $code
}

# ---- The machine, and what the module needs of it.
# Where the loader does not know cuBLASLt, NCCL and cuDNN: they also come with Python packages.
find_libraries() {
  local name file known
  known=$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null)
  for name in $(
    ldd "$module" 2>/dev/null | awk '/not found/ { print $1 }'
    # The module opens these when it first needs them.
    [ -e "$(dirname "$module")/libnccl.so.2" ] || grep -q 'libnccl\.so\.2 ' <<<"$known" || echo libnccl.so.2
    grep -q 'libcudnn\.so\.9 ' <<<"$known" || echo libcudnn.so.9
  ); do
    file=$(timeout 20 find /usr/local /usr/lib /opt "$HOME" ${VIRTUAL_ENV:+"$VIRTUAL_ENV"} -xdev -name "$name" 2>/dev/null | head -n 1)
    if [ -n "$file" ]; then
      export LD_LIBRARY_PATH="$(dirname "$file")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
      say "$name: $file"
    else
      say "$name: not found"
    fi
  done
}
say "trainctl GPU check, $(date -u '+%Y-%m-%d %H:%M') UTC, $("$program" --version 2>&1)"
say "$(uname -srm), $(nproc) cores, module ${module:-none}"
[ -z "$module" ] || find_libraries
if command -v nvidia-smi >/dev/null; then
  lines=30 section "nvidia-smi" 20 nvidia-smi \
    --query-gpu=index,name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.limit,temperature.gpu --format=csv
else
  skip "nvidia-smi" "not installed"
fi
reason=$("$program" devices 2>&1 >"$work/devices")
code=$?
devices=0
if [ $code -eq 0 ]; then
  devices=$(wc -l <"$work/devices")
  say "== devices: $devices"
  tee -a "$output" <"$work/devices"
else
  say "== devices: none: $reason"
fi
# on_devices LEAST NAME LIMIT COMMAND...: a section that needs so many devices.
on_devices() {
  local least=$1
  shift
  if [ "$devices" -eq 0 ]; then
    skip "$1" "no device"
  elif [ "$devices" -lt "$least" ]; then
    skip "$1" "needs $least devices, $devices here"
  else
    section "$@"
  fi
}

# ---- What runs on the device.
width=64 batch=8
[ -z "${TRAINCTL_GPU_CHECK_SMALL:-}" ] || width=16 batch=4
cat >"$work/model.yaml" <<YAML
model:
  {family: llama, num_layers: 2, hidden_size: $width, ffn_hidden_size: $((2 * width)), num_attention_heads: 4,
   num_query_groups: 2, seq_length: 32, vocab_size: 250, make_vocab_size_divisible_by: 16}
data: {train: none}
train: {steps: 100, global_batch_size: $batch, seed: 1234}
optimizer: {type: adamw, weight_decay: 0.1, clip_grad_norm: 0.5}
lr_schedule: {style: cosine, max_lr: 1.0e-2, min_lr: 1.0e-3, warmup_steps: 2}
parallel: {device: cuda, bucket_size: 2000, deadline_seconds: 60}
YAML
verify=("$program" verify --config "$work/model.yaml" --steps 2)
head -c 200000 /dev/urandom | base64 -w 76 >"$work/text.txt"
run=("$program" train --config "$work/model.yaml" --overwrite --set "data.train=$work/text.txt"
  --set data.tokenizer=byte --set model.vocab_size=256 --set train.steps=20)
# A slow device would measure its rates for longer than it trains.
[ -z "${TRAINCTL_GPU_CHECK_SMALL:-}" ] || run+=(--set cluster.matmul_flops=1e12 --set cluster.memory_bandwidth=1e12
  --set cluster.bandwidth=1e11 --set cluster.latency=1e-5)
cat >"$work/graphs.sh" <<'SH'
# graphs.sh DIR TRAIN...: the losses of a run, row by row and with steps that are graphs, are the same in every digit.
for graphs in false true; do
  "${@:2}" --output "$1/$graphs" --set parallel.cuda_graphs=$graphs 2>&1 | tee "$1/said" || exit
  ! grep -q 'steps run row by row' "$1/said" || exit 1
  grep -o '"loss":[^,]*' "$1/$graphs/metrics.jsonl" >"$1/$graphs.losses" || exit
done
diff "$1/false.losses" "$1/true.losses" && echo "losses of $(wc -l <"$1/true.losses") steps are the same"
SH
graphs=(bash -o pipefail "$work/graphs.sh" "$work" "${run[@]}" --set train.steps=6)
test_of() { # test_of LEAST NAME LIMIT PROGRAM WORDS...
  if [ -x "$checks/$4" ]; then
    on_devices "$1" "$2" "$3" "$checks/$4" "${@:5}"
  else
    skip "$2" "$4 is not here"
  fi
}
export TRAINCTL_TEST_DEVICE=cuda
test_of 1 "test cuda_device" 40 test_cuda_device
test_of 1 "test cuda_ops" 60 test_cuda_ops
test_of 1 "test all_ops" 60 test_ops
test_of 1 "test cuda_nccl" 40 test_cuda_nccl

on_devices 1 "verify, 1 rank, fp32" 40 "${verify[@]}" --layouts dp1
on_devices 1 "verify, 1 rank, bf16" 40 "${verify[@]}" --layouts dp1 --set precision.compute=bf16
on_devices 1 "verify, 4 ranks on one device" 60 env CUDA_VISIBLE_DEVICES=0 "${verify[@]}" \
  --set parallel.share_devices=true --layouts dp4+zero2,tp2sp+pp2
ranks=$devices
[ "$ranks" -le 4 ] || ranks=4
[ "$ranks" -ne 3 ] || ranks=2 # they divide the batch
layouts=all
[ -z "${TRAINCTL_GPU_CHECK_SMALL:-}" ] || layouts=dp$ranks
on_devices 2 "verify, several ranks" 90 "${verify[@]}" --world-size "$ranks" --layouts "$layouts"
on_devices 1 "losses of graphs" 60 "${graphs[@]}"
on_devices 2 "losses of graphs, several ranks" 120 "${graphs[@]}" --local-ranks "$ranks"
on_devices 1 "train, 20 steps" 40 "${run[@]}" --output "$work/run"

sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
for tool in memcheck racecheck synccheck; do
  if [ "$devices" -gt 0 ] && [ -z "$sanitizer" ]; then
    skip "compute-sanitizer $tool" "compute-sanitizer is not installed"
  else
    on_devices 1 "compute-sanitizer $tool" 50 "${sanitizer:-none}" --tool "$tool" --error-exitcode 86 \
      "$program" verify --config "$work/model.yaml" --steps 1 --layouts dp1 --set precision.compute=bf16
  fi
done

# ---- Speed.
large=(--config "$configs/gpt2-124m.yaml" --set parallel.device=cuda --set precision.compute=bf16
  --set train.micro_batch_size=8 --set train.global_batch_size=8)
[ -z "${TRAINCTL_GPU_CHECK_SMALL:-}" ] || large=(--config "$work/model.yaml")
lines=100 on_devices 1 "bench ops" 60 "$program" bench ops "${large[@]}"
lines=60 on_devices 1 "bench step" 60 "$program" bench step "${large[@]}" --pairs 9
lines=60 on_devices 1 "graphs against rows" 60 "$program" bench step "${large[@]}" --pairs 9 --against parallel.cuda_graphs=true
lines=80 on_devices 2 "bench comm" 40 "$program" bench comm --device cuda --local-ranks "$devices" ${TRAINCTL_GPU_CHECK_SMALL:+--max-bytes 65536}

say "gpu_check: $passed passed, $failed failed, $skipped skipped, $((SECONDS - begin)) s; report: $output"
[ "$failed" -eq 0 ]
