#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian 12 packages that building, serving and testing need. Source it for the lists, or run it:
#   deploy/packages.sh [build|test]    installs what is missing of that list (as root, or with sudo)
set -euo pipefail

build_packages=(
  build-essential cmake ninja-build ccache pkg-config
  libgrpc++-dev protobuf-compiler-grpc libprotobuf-dev protobuf-compiler
  libopenmpi-dev openmpi-bin libspdlog-dev nlohmann-json3-dev libboost-dev libboost-system-dev
  libpcre2-dev prometheus-cpp-dev libcli11-dev libssl-dev libicu-dev
  libgtest-dev libgmock-dev ca-certificates python3 python3-pip
)
test_packages=(
  "${build_packages[@]}"
  libbenchmark-dev clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev llvm-14 python3-venv
  curl git iproute2 procps libopenblas-dev
)

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

install_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0
  echo "installing Debian packages: ${missing[*]}"
  local as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

if [[ "${BASH_SOURCE[0]}" == "$0" ]]; then
  case "${1:-build}" in
    build) install_packages "${build_packages[@]}" ;;
    test) install_packages "${test_packages[@]}" ;;
    *) echo "usage: $0 [build|test]" >&2; exit 64 ;;
  esac
fi
