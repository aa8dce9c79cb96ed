#!/usr/bin/env bash
# Installs the Debian 12 packages that the project needs and that are missing.
#
#   install_packages.sh [build] [test] [check]
#
# build (the default): to build `zerosim`; test: to build and run the tests as well; check: what
# tests/full.sh needs besides. apt runs only where a package is missing.
# Exit status: 0 done, 2 unknown group, 4 a package is missing and could not be installed.
set -euo pipefail

build_packages=(
  ca-certificates ccache cmake g++ ninja-build pkg-config
  libboost-graph-dev libcli11-dev libfmt-dev libjsoncpp-dev libnlopt-cxx-dev libprotobuf-dev libpugixml-dev libsimgrid-dev
  libyaml-cpp-dev protobuf-compiler
)
test_packages=(libbenchmark-dev libgmock-dev libgtest-dev)
check_packages=(clang-format clang-tidy)

fail() {
  echo "install_packages: $*" >&2
  exit 4
}

packages=()
for group in "${@:-build}"; do
  case "$group" in
    build) packages+=("${build_packages[@]}") ;;
    test) packages+=("${test_packages[@]}") ;;
    check) packages+=("${check_packages[@]}") ;;
    *)
      echo "install_packages: unknown group '$group'; expected build, test or check" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this system has no dpkg and apt-get; install the counterparts of these Debian 12" \
    "packages by hand, then configure with cmake --preset release: ${packages[*]}"
fi

missing=()
for package in "${packages[@]}"; do
  # shellcheck disable=SC2016  # dpkg-query expands ${db:Status-Status} itself
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ "$status" == installed* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=(env DEBIAN_FRONTEND=noninteractive)
if ((EUID != 0)); then
  command -v sudo >/dev/null ||
    fail "packages are missing; as root: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo "${as_root[@]}")
fi

echo "Installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run_apt() {
  "${as_root[@]}" apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1 </dev/null
}
run_apt update || true  # one unreachable source of several is no reason to stop
if ! run_apt install -y --no-install-recommends "${missing[@]}"; then
  tail -n 20 "$log" >&2
  fail "apt-get could not install ${missing[*]} (its last words above): is Debian's archive" \
    "reachable, and is this Debian 12 or newer?"
fi
