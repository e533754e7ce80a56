#!/usr/bin/env bash
# Compiles every CUDA kernel for one device and prints what each takes: registers, stack, spilled bytes and
# static shared memory, as the assembler reports them. Fails where one has more stack or spills more
# than the limits, or where attention of 16-bit types has no tensor-core instructions. Needs nvcc.
#   scripts/check_cuda_kernels.sh [ARCHITECTURE]      default: sm_90
set -uo pipefail
cd "$(dirname "$0")/.." || exit
architecture=${1:-sm_90}
# Dropout looks up one of four words, and calls of exact functions put registers aside: so much may be.
most_stack=48
most_spilled=64

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
if [ ! -x "$nvcc" ]; then
  echo "check_cuda_kernels: skipped, there is no nvcc"
  exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
options=(-std=c++20 "-arch=$architecture" -O3 -DNDEBUG -Ilib --expt-relaxed-constexpr)

for file in lib/ops/cuda/*.cu; do
  if ! "$nvcc" "${options[@]}" -cubin -Xptxas -v -o "$work/out" "$file" 2>"$work/log"; then
    cat "$work/log"
    exit 1
  fi
  echo "file $(basename "$file" .cu)" >>"$work/all"
  c++filt <"$work/log" | sed 's/trainctl:://g; s/(anonymous namespace):://g; s/cuda:://g' >>"$work/all"
done

# One line for each kernel: name, registers, stack, spilled bytes, shared memory.
awk '
  /^file / { file = $2 }
  /Compiling entry function/ {
    name = $0
    sub(/.*Compiling entry function .(void )?/, "", name)
    sub(/. for .sm_.*/, "", name)
    sub(/\(.*\)$/, "", name)
    name = file ": " name
  }
  /bytes stack frame/ { stack[name] = $1; spilled[name] = $5 + $9 }
  /Used [0-9]+ registers/ {
    registers[name] = $5
    shared[name] = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH) + 0 : 0
  }
  END { for (name in registers) print name "|" registers[name] "|" stack[name] "|" spilled[name] "|" shared[name] }
' "$work/all" | sort >"$work/table"
printf '%-60s %9s %6s %8s %7s\n' kernel registers stack spilled shared
awk -F'|' '{ printf "%-60s %9d %6d %8d %7d\n", $1, $2, $3, $4, $5 }' "$work/table"

failed=0
over=$(awk -F'|' -v stack=$most_stack -v spilled=$most_spilled '$3 > stack || $4 > spilled { print $1 }' "$work/table")
if [ -n "$over" ]; then
  echo "check_cuda_kernels: more than $most_stack bytes of stack or $most_spilled spilled: $over" >&2
  failed=1
fi
for file in attention_forward attention_backward; do
  "$nvcc" "${options[@]}" -ptx -o "$work/out" "lib/ops/cuda/$file.cu" || exit 1
  for instruction in mma.sync.aligned.m16n8k16 ldmatrix.sync.aligned cp.async.cg.shared; do
    if ! grep -q "$instruction" "$work/out"; then
      echo "check_cuda_kernels: $file has no $instruction" >&2
      failed=1
    fi
  done
done
[ "$failed" -eq 0 ] && echo "check_cuda_kernels: $(wc -l <"$work/table") kernels for $architecture, all within the limits"
exit "$failed"
