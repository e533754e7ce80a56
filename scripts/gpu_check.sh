#!/usr/bin/env bash
# Checks the CUDA part on this machine and measures it. Writes one text report. Downloads nothing. Each section has
# its own time limit, and is skipped with a reason where it cannot run; all end within the seconds given. It runs from
# a bundle (scripts/bundle.sh) and from the source tree.
#   gpu_check.sh [--profile check|speed|all] [--seconds N] [--output FILE] [--json FILE] [--only PATTERN]
# check   (220 s): the tests for devices, verify, NCCL between processes that share a device, graphs, memcheck, a run
# speed   (300 s): kernels, steps by operation, models of 0.5B to 8B, PyTorch in comparison, ncu
# all     (520 s, the default): check, then speed
# FILE of --json gets the figures; the report compares them with docs/gpu-figures.json. PATTERN is an extended regular
# expression: only sections with such names. TRAINCTL_BUILD is the build folder of a source tree,
# TRAINCTL_GPU_CHECK_SMALL=1 means small sizes, for slow devices. TRAINCTL_CUDA_MODULE names another module. Exit code: 1
# if a section failed, else 0.
set -uo pipefail
profile=all
seconds=
output=gpu_report.txt
json=
only=.
while [ $# -gt 0 ]; do
  case $1 in
    --profile) profile=${2:?--profile needs check, speed or all}; shift ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --json) json=${2:?--json needs a file}; shift ;;
    --output) output=${2:?--output needs a file}; shift ;;
    --only) only=${2:?--only needs a pattern}; shift ;;
    *) sed -n '5s/^# *//p' "$0" >&2; exit 64 ;;
  esac
  shift
done
case $profile in
  check) : "${seconds:=220}" ;;
  speed) : "${seconds:=300}" ;;
  all) : "${seconds:=520}" ;;
  *) sed -n '5s/^# *//p' "$0" >&2; exit 64 ;;
esac
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
if [ -x "$here/../../bin/trainctl" ]; then # a bundle: share/trainctl/gpu_check.sh
  root=$(cd "$here/../.." && pwd)
  program=$root/bin/trainctl checks=$root/checks configs=$root/share/trainctl/configs
  known_figures=$root/share/trainctl/gpu-figures.json
else
  root=$(cd "$here/.." && pwd)
  program=${TRAINCTL_BUILD:-$root/build/release}/bin/trainctl configs=$root/configs
  checks=$(dirname "$program")
  known_figures=$root/docs/gpu-figures.json
fi
module=${TRAINCTL_CUDA_MODULE:-$(ls "$root/lib/libtrainctl_cuda.so" "$(dirname "$program")/libtrainctl_cuda.so" 2>/dev/null | head -n 1)}
work=$(mktemp -d)
sampler=
trap '[ -z "$sampler" ] || kill "$sampler" 2>/dev/null; rm -rf "$work"' EXIT
small=${TRAINCTL_GPU_CHECK_SMALL:-}
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
  [ -z "$small" ] || limit=$((10 * limit)) # the device is slow
  [ "$(left)" -ge "$limit" ] || limit=$(left)
  if [ "$limit" -lt 5 ]; then
    skip "$name" "no time left of $seconds s"
    return
  fi
  say "== $name"
  local sampled=$(sampled_so_far)
  timeout --kill-after=5 "$limit" "$@" >"$work/out" 2>&1 </dev/null
  code=$?
  cut -c 1-240 "$work/out" | tail -n "${lines:-40}" | tee -a "$output"
  tell_clocks "$sampled"
  case $code in
    0) say "== $name: passed, $((SECONDS - start)) s"; passed=$((passed + 1)) ;;
    124 | 137) say "== $name: FAILED: did not end within $limit s"; failed=$((failed + 1)) ;;
    *) say "== $name: FAILED: exit code $code, $((SECONDS - start)) s"; failed=$((failed + 1)) ;;
  esac
  return $code
}

# ---- Clocks and power, each second while the sections run.
sampled_so_far() { if [ -e "$work/clocks" ]; then wc -l <"$work/clocks"; else echo 0; fi; }
# tell_clocks FIRST: of the samples behind FIRST, the least and the greatest clock, and the greatest power and memory.
tell_clocks() {
  [ -n "$sampler" ] || return
  tail -n "+$(($1 + 1))" "$work/clocks" | awk -F, '
    $1 + 0 > 0 { n++; if (n == 1 || $1 < low) low = $1 + 0; if ($1 > high) high = $1 + 0; if ($2 > power) power = $2 + 0; if ($3 > memory) memory = $3 + 0 }
    END { if (n) printf "SM clock %d to %d MHz, at most %.0f W, %d MiB, %d samples\n", low, high, power, memory, n }' | tee -a "$output"
}
# figure NAME VALUE: one number of the report, for --json and the comparison.
figure() { [ -z "${2:-}" ] || printf '%s\t%s\n' "$1" "$2" >>"$work/figures"; }
# value_of KEY FILE: the first number of that name in a JSON document.
value_of() { grep -o "\"$1\":[-0-9.e+]*" "$2" 2>/dev/null | head -n 1 | cut -d: -f2; }
# row_of OP KEY FILE: a number of the row of an operation; keys come behind "op".
row_of() { grep -o "\"op\":\"$1\"[^}]*" "$3" 2>/dev/null | head -n 1 | grep -o "\"$2\":[-0-9.e+]*" | cut -d: -f2; }
scaled() { [ -z "$1" ] || awk -v x="$1" -v by="$2" 'BEGIN { printf "%.4g", x * by }'; }

# ---- The machine, and what the module needs of it.
# Where the loader does not know cuBLASLt, NCCL and cuDNN: they also come with Python packages.
find_libraries() {
  local name file known
  known=$(PATH=$PATH:/sbin ldconfig -p 2>/dev/null)
  for name in $(
    ldd "$module" 2>/dev/null | awk '/not found/ { print $1 }'
    # The module opens these when it first needs them, and looks in its own folder first.
    for name in libnccl.so.2 libcudnn.so.9; do
      [ -e "$(dirname "$module")/$name" ] || grep -qF "$name " <<<"$known" || echo "$name"
    done
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
say "trainctl GPU check, profile $profile, $(date -u '+%Y-%m-%d %H:%M') UTC, $("$program" --version 2>&1)"
say "$(uname -srm), $(nproc) cores, module ${module:-none}"
[ -z "$module" ] || find_libraries
if command -v nvidia-smi >/dev/null; then
  lines=30 section "nvidia-smi" 20 nvidia-smi \
    --query-gpu=index,name,driver_version,memory.total,clocks.sm,clocks.max.sm,power.limit,temperature.gpu --format=csv
  nvidia-smi --query-gpu=clocks.sm,power.draw,memory.used --format=csv,noheader,nounits -i 0 -l 1 >"$work/clocks" 2>/dev/null </dev/null &
  sampler=$!
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
# on_devices LEAST NAME LIMIT COMMAND...: a section that needs at least LEAST devices.
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
sizes() { if [ -n "$small" ]; then echo "$2"; else echo "$1"; fi; }
width=$(sizes 64 16) batch=$(sizes 8 4)
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
# A slow device would measure its rates for longer than it trains.
rates=()
[ -z "$small" ] || rates=(--set cluster.matmul_flops=1e12 --set cluster.memory_bandwidth=1e12 --set cluster.bandwidth=1e11
  --set cluster.latency=1e-5)
run=("$program" train --config "$work/model.yaml" --overwrite --set "data.train=$work/text.txt"
  --set data.tokenizer=byte --set model.vocab_size=256 "${rates[@]}")
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
cat >"$work/near.sh" <<'SH'
# near.sh BOUND ONE OTHER: the last losses of two runs differ by less than BOUND of the first.
last() { grep -o '"loss":[^,]*' "$1/metrics.jsonl" | tail -n 1 | cut -d: -f2; }
one=$(last "$2") other=$(last "$3")
echo "loss $one, $(basename "$2"); $other, $(basename "$3")"
awk -v a="$one" -v b="$other" -v bound="$1" 'BEGIN { d = a - b; exit !(a > 0 && (d < 0 ? -d : d) < bound * a) }'
SH
test_of() { # test_of LEAST NAME LIMIT PROGRAM WORDS...
  if [ -x "$checks/$4" ]; then
    on_devices "$1" "$2" "$3" "$checks/$4" "${@:5}"
  else
    skip "$2" "$4 is not here"
  fi
}

# ---- NCCL between processes that share the first device. NCCL on the host joins threads only: there they share it
# without NCCL, which tries the script.
sharing=$(sizes nccl true)
# mpirun_of RANKS: mpirun and its options, as launch has them.
mpirun_of() { "$program" launch -n "$1" --dry-run -- train | sed 's/ [^ ]*trainctl train$//'; }
cat >"$work/killed.sh" <<'SH'
# killed.sh DIR TRAIN...: of two ranks one is killed; the other ends and names it.
$LAUNCH 2 -- "${@:3}" --output "$1/killed" --set parallel.share_devices="$SHARING" --set parallel.deadline_seconds=10 \
  --set train.steps=1000000 >"$1/said" 2>&1 &
launcher=$!
for ((i = 0; i < 200; ++i)); do
  [ ! -s "$1/killed/metrics.jsonl" ] || break
  kill -0 $launcher 2>/dev/null || { cat "$1/said"; echo "it ended before it was killed"; exit 1; }
  sleep 0.2
done
[ -s "$1/killed/metrics.jsonl" ] || { cat "$1/said"; echo "no step in 40 s"; kill $launcher; exit 1; }
# Each process has the name of the run's folder among its words; rank 1 says so in its environment.
for process in /proc/[0-9]*; do
  { tr '\0' ' ' <"$process/cmdline" | grep -q -- "--output $1/killed"; } 2>/dev/null || continue
  { tr '\0' '\n' <"$process/environ"; } 2>/dev/null | grep -qx 'OMPI_COMM_WORLD_RANK=1\|PMI_RANK=1' || continue
  kill -KILL "${process#/proc/}" && killed=1
done
[ -n "${killed:-}" ] || { echo "rank 1 was not found"; kill $launcher; exit 1; }
wait $launcher
code=$?
tail -n 5 "$1/said"
[ $code -ne 0 ] && grep -q 'rank 1' "$1/said" && echo "the other rank named it"
SH
nccl_sections() {
  local shared=(env "CUDA_VISIBLE_DEVICES=0" "LAUNCH=$program launch -n" "SHARING=$sharing")
  local count start
  for count in 2 4; do
    read -ra start <<<"$(mpirun_of "$count")"
    if [ -n "$small" ]; then
      skip "NCCL on one device, $count ranks, bench comm" "NCCL on the host joins threads only"
    else
      lines=60 on_devices 1 "NCCL on one device, $count ranks, bench comm" 20 "${shared[@]}" "${start[@]}" "$program" \
        bench comm --device cuda --share-devices --max-bytes 1048576 --iterations 5
    fi
  done
  read -ra start <<<"$(mpirun_of 2)"
  on_devices 1 "NCCL on one device, verify" 45 "${shared[@]}" "${start[@]}" "$program" verify \
    --config "$work/model.yaml" --steps 3 --set "parallel.share_devices=$sharing" --layouts tp2,pp2,dp2+zero2
  on_devices 1 "NCCL on one device, a rank is killed" 45 "${shared[@]}" \
    bash "$work/killed.sh" "$work" "${run[@]}"
}

check_sections() {
  export TRAINCTL_TEST_DEVICE=cuda
  test_of 1 "test cuda_device" 40 test_cuda_device
  test_of 1 "test cuda_ops" 60 test_cuda_ops ${small:+"*AdamW*,products*"} # all of them: cuda_ops_on_host
  test_of 1 "test all_ops" 60 test_ops ${small:+"adamw*,add*,cast*"}       # all of them: cuda_all_ops_on_host
  test_of 1 "test cuda_nccl" 40 test_cuda_nccl

  on_devices 1 "verify, 1 rank, fp32" 40 "${verify[@]}" --layouts dp1
  on_devices 1 "verify, 1 rank, bf16" 40 "${verify[@]}" --layouts dp1 --set precision.compute=bf16
  on_devices 1 "verify, 4 ranks on one device" 60 env CUDA_VISIBLE_DEVICES=0 "${verify[@]}" \
    --set parallel.share_devices=true --layouts dp4+zero2,tp2sp+pp2
  on_devices 1 "verify, experts" 60 env CUDA_VISIBLE_DEVICES=0 "$program" verify --config "$configs/verify-experts.yaml" \
    --device cuda --set parallel.share_devices=true --steps 2 --layouts dp2+ep2
  ranks=$devices
  [ "$ranks" -le 4 ] || ranks=4
  [ "$ranks" -ne 3 ] || ranks=2 # they divide the batch
  on_devices 2 "verify, several ranks" 90 "${verify[@]}" --world-size "$ranks" --layouts "$(sizes all "dp$ranks")"
  nccl_sections
  on_devices 1 "losses of graphs" 60 "${graphs[@]}"
  on_devices 2 "losses of graphs, several ranks" 120 "${graphs[@]}" --local-ranks "$ranks"
  on_devices 1 "train, 20 steps" 40 "${run[@]}" --set train.steps=20 --output "$work/run"
  # The loss after 300 steps on the device and on the CPU, which share the seed.
  cat "$configs"/*.yaml "$0" >"$work/book.txt"
  book=("$program" train --config "$configs/shakespeare-char.yaml" --overwrite --steps "$(sizes 300 3)" "${rates[@]}"
    --set "data.train=$work/book.txt" --set train.validate_every=0 --set checkpoint.every=0 --set checkpoint.keep_best=false)
  [ -z "$small" ] || book+=(--set model.num_layers=1 --set model.hidden_size=32 --set model.ffn_hidden_size=32)
  on_devices 1 "losses of the device and the CPU" 60 bash -c \
    '"${@:3}" --device cuda --output "$1/device" && "${@:3}" --device cpu --output "$1/cpu" && bash "$1/near.sh" "$2" "$1/device" "$1/cpu"' \
    - "$work" 2e-3 "${book[@]}"

  sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
  for tool in memcheck racecheck synccheck; do
    if [ "$devices" -gt 0 ] && [ -z "$sanitizer" ]; then
      skip "compute-sanitizer $tool" "compute-sanitizer is not installed"
    else
      on_devices 1 "compute-sanitizer $tool" 50 "${sanitizer:-none}" --tool "$tool" --error-exitcode 86 \
        "$program" verify --config "$work/model.yaml" --steps 1 --layouts dp1 --set precision.compute=bf16
    fi
  done
}

# ---- Speed.
# model_file NAME SEQUENCES LENGTH MORE: a model that is known by a preset, on random tokens; small ones in its place.
model_file() {
  local more=${4:-}
  [ -z "$small" ] || more="num_layers: 1, hidden_size: 64, ffn_hidden_size: 64, num_attention_heads: 1, num_query_groups: 1, kv_channels: 64, vocab_size: 96"
  case $1 in gpt2*) more=${more/, num_query_groups: 1, kv_channels: 64/} ;; esac
  cat >"$work/$1.yaml" <<YAML
model: {preset: $1, seq_length: $(sizes "$3" 128)${more:+, $more}}
data: {train: none}
train: {steps: 100, global_batch_size: $(sizes "$2" 1)}
optimizer: {type: adamw}
lr_schedule: {max_lr: 1.0e-4}
precision: {compute: bf16}
parallel: {device: cuda}
YAML
}
# step NAME LIMIT FIGURE WORDS...: bench step, and its figures.
step() {
  local name=$1 limit=$2 what=$3
  shift 3
  lines=40 on_devices 1 "$name" "$limit" "$program" bench step --json "$work/step.json" "$@"
  [ -s "$work/step.json" ] || return
  figure "$what, tokens/s" "$(scaled "$(value_of tokens_per_second "$work/step.json")" 1)"
  figure "$what, step ms" "$(scaled "$(value_of step_seconds "$work/step.json")" 1e3)"
  figure "$what, step / products" "$(value_of step_over_products "$work/step.json")"
  figure "$what, planned GiB" "$(scaled "$(value_of planned_bytes "$work/step.json")" 9.313e-10)"
  rm -f "$work/step.json"
}
# kernels NAME LIMIT FIGURE ONLY WORDS...: bench ops of some operations, and their times.
kernels() {
  local name=$1 limit=$2 what=$3 cases=$4 op
  shift 4
  lines=60 on_devices 1 "$name" "$limit" "$program" bench ops --only "$cases" --json "$work/ops.json" "$@"
  [ -s "$work/ops.json" ] || return
  while read -r op; do
    figure "$what, $op, us" "$(scaled "$(row_of "$op" seconds "$work/ops.json")" 1e6)"
  done < <(grep -o '"op":"[^"]*"' "$work/ops.json" | cut -d'"' -f4)
  rm -f "$work/ops.json"
}
small_state=(--set optimizer.exp_avg_dtype=bf16 --set optimizer.exp_avg_sq_dtype=bf16 --set optimizer.main_params_dtype=bf16
  --set optimizer.main_grads_dtype=bf16)
state=() && [ -n "$small" ] || state=("${small_state[@]}")
speed_sections() {
  model_file gpt2-124m 4 1024
  local four=(--config "$work/gpt2-124m.yaml")
  local many=(--config "$work/gpt2-124m.yaml" --set "train.global_batch_size=$(sizes 32 2)" --set "train.micro_batch_size=$(sizes 32 2)")
  local rows='norm|gelu|add|bias_gradient|embedding|cross_entropy|adamw|square_sum'
  kernels "kernels, 4k tokens" 15 "4k tokens" "$rows" "${four[@]}"
  kernels "kernels, 32k tokens" 20 "32k tokens" "$rows" "${many[@]}"
  model_file llama3.2-1b 8 2048
  model_file llama3-8b 1 8192
  local backend
  for backend in auto own any; do
    local words=(--set parallel.attention_backend=auto)
    [ $backend != own ] || words=(--set parallel.attention_backend=own)
    [ $backend != any ] || words=(--set train.deterministic_mode=false)
    kernels "attention, 4 x 1,024, $backend" 8 "attention 4 x 1024 $backend" '^attention_(for|back)ward' "${four[@]}" "${words[@]}"
    kernels "attention, 8 x 2,048, $backend" 8 "attention 8 x 2048 $backend" '^attention_(for|back)ward' --config "$work/llama3.2-1b.yaml" "${words[@]}"
    kernels "attention, 1 x 8,192, $backend" 8 "attention 1 x 8192 $backend" '^attention_(for|back)ward' --config "$work/llama3-8b.yaml" "${words[@]}"
  done
  kernels "products, 1B" 15 "products 1B" '^matmul' --config "$work/llama3.2-1b.yaml"
  kernels "products, 8B" 15 "products 8B" '^matmul' --config "$work/llama3-8b.yaml"

  local sequences words
  for sequences in 4 32; do
    words=("${four[@]}") && [ $sequences = 4 ] || words=("${many[@]}")
    lines=60 on_devices 1 "by operation, 124M, $sequences sequences" 15 "$program" bench step --by-op --pairs 5 \
      --json "$work/by_op.json" "${words[@]}"
    if [ -s "$work/by_op.json" ]; then
      figure "by operation 124M x $sequences, between ms" "$(scaled "$(value_of between_seconds "$work/by_op.json")" 1e3)"
      figure "by operation 124M x $sequences, memsets" "$(value_of memsets "$work/by_op.json")"
      [ -z "$json" ] || cat "$work/by_op.json" >>"$work/documents"
      rm -f "$work/by_op.json"
    fi
    step "step, 124M, $sequences sequences" 15 "124M x $sequences" --pairs 9 "${words[@]}"
  done
  lines=20 on_devices 1 "graphs against rows" 15 "$program" bench step "${four[@]}" --pairs 9 \
    --set parallel.cuda_graphs=false --against parallel.cuda_graphs=true
  step "step, 124M, timed products" 15 "124M x 4, timed" --pairs 9 "${four[@]}" --set parallel.product_algorithms=timed
  if [ -n "$small" ]; then
    skip "this device as a file, and a step by it" "the device is emulated: its times say nothing"
  else
    on_devices 1 "this device as a file, and a step by it" 45 "$program" bench device "${four[@]}" --seconds 20 \
      --save "$work/own.yaml"
  fi
  step "step, 124M, any order of sums" 15 "124M x 4, any order" --pairs 9 "${four[@]}" --set train.deterministic_mode=false

  model_file qwen2-0.5b 32 1024
  model_file qwen2.5-1.5b 32 1024
  model_file qwen2.5-3b 16 1024
  model_file qwen2-7b 4 1024
  step "step, Qwen 0.5B, 32 x 1,024" 20 "Qwen 0.5B" --pairs 5 --config "$work/qwen2-0.5b.yaml"
  step "step, Qwen 1.5B, 32 x 1,024" 20 "Qwen 1.5B" --pairs 3 --config "$work/qwen2.5-1.5b.yaml" "${state[@]}"
  step "step, Qwen 3B, 16 x 1,024" 20 "Qwen 3B" --pairs 3 --config "$work/qwen2.5-3b.yaml" "${state[@]}"
  step "step, Qwen 7B, 4 x 1,024" 25 "Qwen 7B" --pairs 3 --config "$work/qwen2-7b.yaml" "${state[@]}" \
    --set recompute.enable=true --set recompute.select=activations
  model_file qwen3-30b-a3b 4 4096 "num_layers: 4"
  words=() && [ -z "$small" ] || words=(--set moe.num_experts=4 --set moe.router_topk=2 --set moe.ffn_hidden_size=32)
  step "step, experts, 4 x 4,096" 25 "Qwen 30B-A3B, 4 layers" --pairs 3 --config "$work/qwen3-30b-a3b.yaml" "${state[@]}" "${words[@]}"
  step "step, Llama 8B, 1 x 8,192" 25 "Llama 8B" --pairs 3 --config "$work/llama3-8b.yaml" "${state[@]}" \
    --set recompute.enable=true --set recompute.select=norms+mlp+activations

  compare=$here/compare_pytorch.py
  if [ "$devices" -gt 0 ] && ! { [ -e "$compare" ] && python3 -c 'import torch' 2>/dev/null; }; then
    skip "PyTorch, 124M, 4 sequences" "python3 has no torch, or compare_pytorch.py is not here"
  elif [ -n "$small" ]; then
    skip "PyTorch, 124M, 4 sequences" "it has no small sizes"
  else
    on_devices 1 "PyTorch, 124M, 4 sequences" 50 python3 "$compare" --device cuda --binary "$program" \
      --config "$configs/gpt2-124m.yaml" --pairs 2 --dtype bf16
    on_devices 1 "PyTorch, 124M, 32 sequences" 40 python3 "$compare" --device cuda --binary "$program" \
      --config "$configs/gpt2-124m.yaml" --pairs 1 --sequences 32 --dtype bf16
    on_devices 1 "PyTorch, 124M, 4 sequences, fp32" 40 python3 "$compare" --device cuda --binary "$program" \
      --config "$configs/gpt2-124m.yaml" --pairs 1 --dtype fp32
  fi
  ncu=$(command -v ncu || ls /usr/local/cuda*/bin/ncu 2>/dev/null | head -n 1)
  if [ "$devices" -gt 0 ] && { [ -z "$ncu" ] || [ -n "$small" ]; }; then
    skip "ncu" "${small:+the device is emulated}${ncu:-ncu is not installed}"
  else
    on_devices 1 "ncu" 22 "${ncu:-none}" --clock-control none --launch-skip 100 --launch-count 8 \
      --metrics dram__bytes.sum,gpu__time_duration.sum,smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio \
      "$program" bench ops --only "$rows" "${four[@]}"
  fi
  lines=80 on_devices 2 "bench comm" 40 "$program" bench comm --device cuda --local-ranks "$devices" ${small:+--max-bytes 65536}
}

# ---- The figures: now, those that the repository has for this device, and the ratio.
device_name=$(sed -n 's/^0  \([^,]*\),.*/\1/p' "$work/devices" 2>/dev/null | head -n 1)
tell_figures() {
  [ -s "$work/figures" ] || return
  say "== figures of ${device_name:-no device}: before, now, ratio"
  # For each device the file has one line "NAME": { and then one line for each figure.
  sed -n "/^  \"${device_name:-none}\": {/,/^  }/s/^    \"\(.*\)\": \([-0-9.e+]*\),\{0,1\}\$/\1\t\2/p" "$known_figures" 2>/dev/null >"$work/before"
  awk -F'\t' 'NR == FNR { before[$1] = $2; next }
    { b = ($1 in before) ? before[$1] : "-"; r = b + 0 > 0 ? sprintf("%.3f", $2 / b) : "-"; printf "%-52s %12s %12s %8s\n", $1, b, $2, r }' \
    "$work/before" "$work/figures" | tee -a "$output"
}
write_json() {
  [ -n "$json" ] || return 0
  {
    printf '{\n  "%s": {\n    "date": "%s"' "${device_name:-none}" "$(date -u +%Y-%m-%d)"
    awk -F'\t' '{ printf ",\n    \"%s\": %s", $1, $2 }' "$work/figures" 2>/dev/null
    printf '\n  },\n  "documents": ['
    paste -sd, "$work/documents" 2>/dev/null
    printf ']\n}\n'
  } >"$json" || { say "cannot write $json"; failed=$((failed + 1)); }
}

[ "$profile" = speed ] || check_sections
[ "$profile" = check ] || speed_sections
tell_figures
write_json
say "gpu_check: $passed passed, $failed failed, $skipped skipped, $((SECONDS - begin)) s; report: $output"
[ "$failed" -eq 0 ]
