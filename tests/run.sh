#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test that needs no GPU.
#
#   tests/run.sh [ctest flags]      for example: tests/run.sh -L oracle
#
# The last lines are ctest's summary, the exit status is ctest's.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

bash "$root/examples/install_packages.sh" build test
cd "$root"
cmake --preset ci --log-level=WARNING >/dev/null
cmake --build --preset ci
exec ctest --preset ci "$@"
