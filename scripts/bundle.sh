#!/usr/bin/env bash
# Makes a directory that runs on machines without any of the packages that trainctl is built with: the
# program, the CUDA module, the shared libraries they need except the C library, Open MPI with its
# plugins and mpirun, the configurations, and what scripts/gpu_check.sh runs. It may lie anywhere and
# be moved; see docs/gpu.md. Builds what is missing. Prints the directory and the archive.
#   scripts/bundle.sh [--with-cuda] [--output DIR] [BUILD_DIR]
#   --with-cuda   also cuBLASLt, NCCL, and cuDNN where it is found: nothing need be downloaded there; 1 to 2 GB more
#   --output DIR  where the directory and the archive go; default: build/bundle
#   BUILD_DIR     default: build/release
set -euo pipefail
cd "$(dirname "$0")/.."
with_cuda=0
output=build/bundle
build=build/release
while [ $# -gt 0 ]; do
  case $1 in
    --with-cuda) with_cuda=1 ;;
    --output) output=${2:?--output needs a directory}; shift ;;
    -*) sed -n '6,9s/^# *//p' "$0" >&2; exit 64 ;;
    *) build=$1 ;;
  esac
  shift
done
fail() { echo "bundle: $1" >&2; exit 1; }
[ -f "$build/CMakeCache.txt" ] || scripts/build.sh release trainctl

# A target that this build does not have (the module, without CUDA) is left out.
known=$(cmake --build "$build" --target help)
targets=(trainctl)
checks=1
for target in trainctl_cuda test_cuda_device test_cuda_ops test_cuda_nccl test_ops; do
  if grep -q "^$target: " <<<"$known"; then targets+=("$target"); else checks=0; fi
done
cmake --build "$build" --target "${targets[@]}" >&2

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=trainctl-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)
mkdir -p "$output"
root=$(cd "$output" && pwd)/$name
rm -rf "$root"
cmake --install "$build" --strip --prefix "$root" >/dev/null
[ $checks -eq 0 ] || cmake --install "$build" --strip --prefix "$root" --component checks >/dev/null

# ---- Open MPI: its programs, plugins and texts, where share/trainctl/mpi.sh says they are.
place() { ompi_info --path "$1" --parsable | cut -d: -f3; }
mkdir -p "$root"/{lib/openmpi,libexec,share/openmpi,etc}
for program in mpirun orted; do
  cp -L "$(place bindir)/$program" "$root/libexec/$program"
done
# Plugins for fabrics need drivers and large libraries of their own; TCP and shared memory are left.
for plugin in "$(place pkglibdir)"/mca_*.so; do
  case $(basename "$plugin") in
    *_ofi.so | *_psm.so | *_psm2.so | *_openib.so | *_ucx.so | *_usnic.so | mca_scoll_* | mca_spml_* | mca_sshmem_* | mca_memheap_*) ;;
    *) cp -L "$plugin" "$root/lib/openmpi/" ;;
  esac
done
cp -Lr "$(place pkgdatadir)"/. "$root/share/openmpi/"
cp -Lr "$(place sysconfdir)" "$root/etc/openmpi"

cat >"$root/share/trainctl/mpi.sh" <<'SETTINGS'
# Where the bundle's Open MPI finds its parts; $bundle is the bundle's directory. bin/mpirun reads this. A
# program that another launcher starts (srun) needs it in its environment: bundle=DIR; . this file.
export OPAL_PREFIX=$bundle
export OPAL_LIBDIR=$bundle/lib
export OPAL_PKGLIBDIR=$bundle/lib/openmpi
export OPAL_PKGDATADIR=$bundle/share/openmpi
export OPAL_SYSCONFDIR=$bundle/etc/openmpi
export PMIX_PREFIX=$bundle
export PMIX_PKGLIBDIR=$bundle/lib/pmix
export PMIX_PKGDATADIR=$bundle/share/pmix
SETTINGS
# Its programs have no run path: the loader is told where the libraries are, so that what they start
# is not.
for program in mpirun orted; do
  cat >"$root/bin/$program" <<WRAPPER
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
bundle=\$(dirname "\$here")
. "\$bundle/share/trainctl/mpi.sh"
PATH=\$here:\$PATH
# It looks for a program that starts ranks elsewhere even where all are here, and ends without one.
command -v ssh >/dev/null || command -v rsh >/dev/null || command -v srun >/dev/null || export OMPI_MCA_plm=isolated
exec LOADER --library-path "\$bundle/lib" "\$bundle/libexec/$program" "\$@"
WRAPPER
  chmod +x "$root/bin/$program"
done

# ---- The libraries that all of it needs, except those of the C library and of CUDA.
loader=$(readelf -p .interp "$root/bin/trainctl" | grep -o '/lib.*')
sed -i "s|LOADER|$loader|" "$root/bin/mpirun" "$root/bin/orted"
binaries() { find "$root" -type f \( -name '*.so*' -o -path '*/bin/*' -o -path '*/libexec/*' -o -path '*/checks/*' \); }
needed() {
  binaries | while read -r file; do
    if [ "$(head -c 4 "$file" | tail -c 3)" = ELF ]; then
      env LD_LIBRARY_PATH="$(place libdir)" ldd "$file" 2>/dev/null || true
    fi
  done | awk '$2 == "=>" { print $1 "|" ($3 ~ /^\// ? $3 : "") }' | sort -u
}
missing=""
while IFS='|' read -r library file; do
  case $library in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | libresolv.so.* | libutil.so.*) continue ;;
    libcublasLt.so.* | libnccl.so.*) [ $with_cuda -eq 1 ] || continue ;;
    libcuda.so.*) continue ;; # the driver's
  esac
  [ -n "$file" ] || { missing="$missing $library"; continue; }
  case $file in "$root"/*) continue ;; esac
  cp -L "$file" "$root/lib/$library"
done < <(needed)
[ -z "$missing" ] || fail "not found:$missing"
# The module opens NCCL and cuDNN by itself, and cuDNN the compiler of its kernels.
if [ $with_cuda -eq 1 ]; then
  cp -L "$(sed -n 's/^NCCL_LIBRARY:FILEPATH=//p' "$build/CMakeCache.txt")" "$root/lib/libnccl.so.2"
  cuda=$(sed -n 's/^CMAKE_CUDA_COMPILER:STRING=\(.*\)\/bin\/nvcc$/\1/p' "$build/CMakeCache.txt")
  while read -r file; do
    cp -L "$file" "$root/lib/$(basename "$file")"
  done < <(find -L "${cuda:-/usr/local/cuda}/lib" "${cuda:-/usr/local/cuda}/lib64" /usr/lib/x86_64-linux-gnu -maxdepth 1 ! -name '*.alt.*' \
    \( -name 'libcudnn*.so.9' -o -name 'libnvrtc*.so.1[0-9]' -o -name 'libnvrtc-builtins.so.1[0-9].[0-9]' \) 2>/dev/null)
  [ -e "$root/lib/libcudnn.so.9" ] || echo "bundle: cuDNN is not here: attention will be trainctl's own" >&2
fi
# PMIx, through which mpirun and its ranks meet, has plugins and texts of its own.
pmix=$(dirname "$(ldconfig -p | sed -n 's/.*libpmix.so.2 .*=> //p' | head -n 1)")
mkdir -p "$root/lib/pmix" "$root/share/pmix"
find -L "$pmix" -maxdepth 4 -name 'pmix_mca_*.so' -exec cp -Lu {} "$root/lib/pmix/" \;
find -L "$pmix" -maxdepth 4 -path '*/share/pmix/*' -type f -exec cp -Lu {} "$root/share/pmix/" \;
chmod -R u+w "$root/lib" "$root/libexec"
find "$root/lib" -name '*.so*' ! -name 'libcublasLt*' ! -name 'libnccl*' ! -name 'libcudnn*' ! -name 'libnvrtc*' -type f -exec strip --strip-unneeded {} + 2>/dev/null || true
# Run paths of their own would lead to the directories they come from, and switch off that of the program.
binaries | while read -r file; do
  case $file in
    "$root"/bin/* | "$root"/checks/* | */libtrainctl_cuda.so) ;;
    *) echo "file(RPATH_REMOVE FILE \"$file\")" ;;
  esac
done >"$root/remove.cmake"
cmake -P "$root/remove.cmake" >/dev/null
rm "$root/remove.cmake"

# ---- The licences of what was copied, where the system knows its packages.
if command -v dpkg-query >/dev/null; then
  needed | while IFS='|' read -r library _; do
    package=$(dpkg-query -S "*/$library" 2>/dev/null | head -n 1 | cut -d: -f1) || true
    [ -n "$package" ] && [ -f "$root/lib/$library" ] || continue
    mkdir -p "$root/share/licenses"
    cp -L "/usr/share/doc/$package/copyright" "$root/share/licenses/$package" 2>/dev/null || true
  done
fi
cp LICENSE "$root/"

# CUDA's libraries are 1 to 2 GB: the fastest setting packs them in minutes, the usual one in half an hour.
XZ_OPT="-T0 $([ $with_cuda = 0 ] || echo -1)" tar -C "$output" --owner=0 --group=0 -cJf "$root.tar.xz" "$name"
echo "$root ($(du -sm "$root" | cut -f1) MB)"
echo "$root.tar.xz ($(du -sm "$root.tar.xz" | cut -f1) MB)"
