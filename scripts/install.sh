#!/usr/bin/env bash
# Installs the Debian 12 packages that trainctl needs. Ubuntu 24.04 has the same names, in main and
# universe. Run it as root or with sudo. It does nothing if all packages are installed.
#   scripts/install.sh               for building, training and scripts/test.sh
#   scripts/install.sh --hosts       also for tests/hosts: hosts of namespaces with ssh, and a Slurm
#   scripts/install.sh --thorough    also for scripts/test.sh --thorough, with those of --hosts
set -euo pipefail
case "$*" in
  "" | --hosts | --thorough) ;;
  *)
    echo "usage: scripts/install.sh [--hosts | --thorough]" >&2
    exit 64
    ;;
esac

packages=(
  g++ cmake ninja-build                                # compiler and build
  libyaml-cpp-dev libcli11-dev libspdlog-dev libfmt-dev  # configuration, command line, messages
  nlohmann-json3-dev                                   # JSON
  libsentencepiece-dev libpcre2-dev libutf8proc-dev    # tokenizers
  libprotobuf-dev protobuf-compiler                    # strategy files
  libdnnl-dev                                          # matrix products (oneDNN)
  libxxhash-dev                                        # hashes of checkpoints
  libopenmpi-dev openmpi-bin                           # MPI and mpirun
  catch2                                               # tests
)
if [ $# -gt 0 ]; then
  packages+=(
    openssh-server openssh-client iproute2 nftables procps # hosts and their network
    slurm-wlm munge                                        # a batch system
  )
fi
if [ "$*" = --thorough ]; then
  packages+=(
    chromium              # opens the HTML page of a plan
    qemu-user             # runs the program on older processors
    g++-aarch64-linux-gnu # compiles for 64-bit Arm
  )
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "install: all ${#packages[@]} packages are already installed"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install: run as root or install sudo; these packages are missing: ${missing[*]}" >&2
    exit 69
  fi
  as_root=(sudo)
fi

# Some packages start a service when they are installed, which no test needs.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi
echo "install: apt-get install ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends "${missing[@]}"
