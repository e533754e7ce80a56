#!/usr/bin/env bash
# Runs the release build on emulated processors (qemu-user): level v3 on a Haswell, and the error message on
# processors below x86-64-v3. Skipped if qemu is missing. usage: check_cpu_levels.sh [BIN]
set -uo pipefail
cd "$(dirname "$0")/.." || exit
bin=${1:-build/release/bin}
qemu=$(command -v qemu-x86_64) || { echo "check_cpu_levels: skipped, no qemu-x86_64 (package qemu-user)"; exit 0; }
failed=0
fail() { echo "check_cpu_levels: FAILED: $1"; failed=1; }

"$qemu" -cpu Haswell "$bin/trainctl" --version > /dev/null || fail "trainctl --version on a Haswell"
# These multiply through oneDNN too, and go through attention in vectors.
"$qemu" -cpu Haswell "$bin/test_ops" "every available level has a complete table of its own" \
  || fail "the tables of a Haswell"
"$qemu" -cpu Haswell "$bin/test_ops" "matmul does not depend on earlier contents of c or of its scratch" \
  || fail "products on a Haswell"
"$qemu" -cpu Haswell "$bin/test_ops" "layernorm*" || fail "layernorm on a Haswell"

for cpu in core2duo Nehalem SandyBridge; do
  said=$("$qemu" -cpu $cpu "$bin/trainctl" --version 2>&1)
  code=$?
  [ $code -eq 69 ] || fail "exit code $code instead of 69 on a $cpu"
  grep -q 'this processor is too old: trainctl needs x86-64-v3, and this one lacks .*avx2' <<< "$said" \
    || fail "on a $cpu it says: $said"
done
[ $failed -eq 0 ] && echo "check_cpu_levels: passed"
exit $failed
