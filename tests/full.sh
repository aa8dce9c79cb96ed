#!/usr/bin/env bash
# The slower checks, after tests/run.sh: format, headers that compile alone, an installed tree and
# a project that uses it, clang-tidy, and all tests under the address and undefined-behaviour
# sanitizers. The last lines are ctest's summary of the latter.
#
# Exit status: 0 where all hold.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

step() { echo "== $* ($((SECONDS / 60)) min $((SECONDS % 60)) s)"; }

step packages
bash examples/install_packages.sh build test check

step format
find sim topology traces validate tests -name '*.h' -print0 -o -name '*.cpp' -print0 |
  xargs -0 clang-format -n -Werror

step build
cmake --preset ci --log-level=WARNING >/dev/null
cmake --build --preset ci

step headers
cmake --build --preset ci --target all_verify_interface_header_sets

step install
rm -rf build/install/ci build/consumer
cmake --install build/ci --prefix build/install/ci >/dev/null
build/install/ci/bin/zerosim --version
cmake -G Ninja -S tests/install -B build/consumer --log-level=WARNING \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_PREFIX_PATH="$root/build/install/ci" >/dev/null
cmake --build build/consumer
ctest --test-dir build/consumer --no-tests=error --output-on-failure

step clang-tidy
# One process a core. Generated sources and tests are left out, their headers are not.
find sim topology traces validate -name '*.cpp' -print0 | LC_ALL=C sort -z |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy -p build/ci --quiet

step sanitizers
cmake --preset asan --log-level=WARNING >/dev/null
cmake --build --preset asan
exec ctest --preset asan
