#!/usr/bin/env bash
# GPT-2 124M on 4 ranks under a limit of address space: plan and train say that it is too small for ZeRO-1, and ZeRO-3 with
# recomputed norms, activation functions and attention trains under it. Needs about 7 GiB of memory. usage: check_memory_limit.sh [BIN]
set -uo pipefail
cd "$(dirname "$0")/.." || exit
bin=$(realpath "${1:-build/release/bin}")/trainctl
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
failed=0
fail() { echo "check_memory_limit: FAILED: $1"; failed=1; }

limit=2000000 # KiB of each process; the plan's memory, the program and its libraries
cat > "$here/gpt2.yaml" << EOF
model: {preset: gpt2-124m, seq_length: 1024}
data: {train: $PWD/docs/pipeline.md, tokenizer: byte}
train: {steps: 2, global_batch_size: 4, micro_batch_size: 1, validate_every: 0}
lr_schedule: {max_lr: 6.0e-4}
parallel: {parallel_mode: hybrid_parallel, data_parallel: 4, parallel_optimizer: {enable: true}}
output: {dir: $here/run}
EOF
zero1=(--set parallel.parallel_optimizer.optimizer_level=level1)
zero3=(--set parallel.parallel_optimizer.optimizer_level=level3
  --set recompute.enable=true --set recompute.select=norms+activations+attention)
plan() { "$bin" plan --config "$here/gpt2.yaml" --world-size 4 --memory-limit 1.5 "$@" 2>&1; }
train() {
  mpirun --oversubscribe --allow-run-as-root --bind-to none -n 4 \
    bash -c "ulimit -v $limit && exec \"\$0\" \"\$@\"" "$bin" train --config "$here/gpt2.yaml" "$@" > "$here/log" 2>&1
}

grep -q "does not fit in 1.5 GiB" <<< "$(plan "${zero1[@]}")" || fail "plan does not say that ZeRO-1 needs more than 1.5 GiB"
grep -q " fits in 1.5 GiB" <<< "$(plan "${zero3[@]}")" || fail "plan does not say that ZeRO-3 fits in 1.5 GiB"
train "${zero1[@]}" && fail "ZeRO-1 trains under the limit"
grep -q "error: address space: .* the limit is" "$here/log" || { fail "ZeRO-1 does not name the limit"; tail "$here/log"; }
train "${zero3[@]}" || { fail "ZeRO-3 does not train under the limit"; tail "$here/log"; }
grep "^memory: " "$here/log" | tail -n 1
[ -s "$here/run/model.safetensors" ] || fail "ZeRO-3 left no weights"
[ $failed -eq 0 ] && echo "check_memory_limit: passed"
exit $failed
