#!/usr/bin/env bash
# Holds what lets one binary run on every processor (lib/ops/cpu/levels.cmake): the object of a level shows
# nothing but its table to the linker, and in the program only a level's own code uses its instructions.
# usage: level_objects.sh PROGRAM LEVEL_OBJECT...; exit code 77: skipped.
set -uo pipefail
program=$1
shift
for tool in nm objdump readelf; do
  command -v $tool > /dev/null || { echo "skipped: no $tool"; exit 77; }
done
failed=0
fail() { echo "FAILED: $1"; failed=1; }

for object in "$@"; do
  table=trainctl_$(basename "$object" .o)
  visible=$(nm --defined-only --extern-only --format=posix "$object" | cut -d' ' -f1)
  [ "$visible" = "$table" ] || fail "$object shows more than $table: $visible"
  readelf --section-groups --wide "$object" | grep -q 'COMDAT group' &&
    fail "$object has COMDAT groups, of which the linker keeps one"
done

# Per section: how many instructions use AVX (v...), ymm, zmm or mask registers, bf16 pairs, AMX tiles; and
# where the first of each is.
uses=$(objdump --disassemble --no-show-raw-insn "$program" | awk -F'\t' '
  /^Disassembly of section/ { section = $0; sub(/.* /, "", section); sub(/:$/, "", section); next }
  /^[0-9a-f]+ <.*>:$/ { where = $0; next }
  NF < 2 { next }
  function use(kind) { if (!((section, kind) in count)) first[section, kind] = where; ++count[section, kind] }
  $2 ~ /^v/ && $2 !~ /^ver[rw]/ { use("avx") }
  $2 ~ /%ymm/ { use("ymm") }
  $2 ~ /%zmm|%k[0-7]|^k[a-z]+[bwdq] / { use("avx512") }
  $2 ~ /^vdpbf16ps|^vcvtne/ { use("bf16") }
  $2 ~ /%tmm|^tdp|^tile|^(ld|st)tilecfg/ { use("amx") }
  END { for (key in count) { split(key, part, SUBSEP); print part[1], part[2], count[key], first[key] } }')

has() { grep -q "^$1 $2 " <<< "$uses"; }
refuse() {
  local found
  found=$(grep -E "^$1 $2 " <<< "$uses") && fail "section, instructions, number, first place: $found"
}
# First that the search finds what there is.
has level_v3 ymm || fail "level_v3 has no AVX2 code"
has level_avx512 avx512 || fail "level_avx512 has no AVX-512 code"
has level_avx512_bf16 bf16 || fail "level_avx512_bf16 has no products of bf16 pairs"
has level_amx amx || fail "level_amx has no tiles of bf16"
refuse level_v3 '(avx512|bf16|amx)'
refuse level_avx512 '(bf16|amx)'
refuse level_avx512_bf16 amx
others=$(grep -v '^level_' <<< "$uses") && fail "outside the levels: $others"
exit $failed
