#!/usr/bin/env bash
# Makes a bundle and checks that it is complete: every library that a file of it needs is in it or belongs to the
# C library or to CUDA, no file has a run path that leads elsewhere, it is at most 50 MB, and after it
# was moved it plans, trains on one rank and on two under its own mpirun, with nothing in the environment.
#   scripts/check_bundle.sh [BUILD_DIR]
set -uo pipefail
cd "$(dirname "$0")/.." || exit
command -v ompi_info >/dev/null || { echo "check_bundle: skipped, MPI is not Open MPI"; exit 0; }
most_megabytes=50
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() { echo "check_bundle: FAILED: $1" >&2; failed=1; }

scripts/bundle.sh --output "$work" "${1:-build/release}" >"$work/log" 2>&1 || { tail "$work/log" >&2; exit 1; }
size=$(du -sm "$work"/*.tar.xz | cut -f1)
[ "$size" -le $most_megabytes ] || fail "the archive has $size MB, more than $most_megabytes"
mkdir "$work/moved"
tar -C "$work/moved" -xJf "$work"/*.tar.xz
rm -rf "$work"/trainctl-*
bundle=$(echo "$work"/moved/*)

system='^(libc|libm|libdl|libpthread|librt|libresolv|libutil|ld-linux-x86-64|ld-linux-aarch64)\.so'
files=0
while read -r file; do
  [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
  files=$((files + 1))
  dynamic=$(readelf -d "$file")
  for library in $(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic"); do
    grep -qE "$system" <<<"$library" && continue
    [ -e "$bundle/lib/$library" ] && continue
    [ "$(basename "$file")" = libtrainctl_cuda.so ] && grep -qE '^(libcublasLt|libnccl)\.so' <<<"$library" && continue
    fail "$(basename "$file") needs $library"
  done
  case $(sed -n 's/.*(R.*PATH).*\[\(.*\)\]/\1/p' <<<"$dynamic") in
    "" | '$ORIGIN'*) ;;
    *) fail "$(basename "$file") has a run path of its own" ;;
  esac
done < <(find "$bundle" -type f)

bare=(env -i "HOME=$work" PATH=/usr/bin:/bin)
head -c 100000 /dev/urandom | base64 >"$work/text.txt"
config=(--config "$bundle/share/trainctl/configs/gpt.yaml" --set "data.train=$work/text.txt" --set data.tokenizer=byte)
"${bare[@]}" "$bundle/bin/trainctl" plan "${config[@]}" --world-size 8 >"$work/log" 2>&1 || fail "plan: $(tail -n 3 "$work/log")"
"${bare[@]}" "$bundle/bin/trainctl" train "${config[@]}" --steps 2 --output "$work/one" >"$work/log" 2>&1 \
  || fail "train on one rank: $(tail -n 3 "$work/log")"
"${bare[@]}" "$bundle/bin/trainctl" launch -n 2 -- train "${config[@]}" --steps 2 --output "$work/two" >"$work/log" 2>&1 \
  || fail "train on two ranks: $(tail -n 3 "$work/log")"
grep -qF "$bundle/bin/mpirun" "$work/log" || fail "launch did not use the bundle's mpirun"
(cd "$work" && "${bare[@]}" "$bundle/share/trainctl/gpu_check.sh" --only cuda_device >"$work/log" 2>&1) || fail "gpu_check: $(tail -n 3 "$work/log")"
[ $failed -eq 0 ] && echo "check_bundle: $files files with all they need, $size MB, trains on one rank and on two"
exit $failed
