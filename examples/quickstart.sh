#!/usr/bin/env bash
# From a fresh Debian 12 to a first answer: installs what is missing (as root or with sudo), builds
# `zerosim`, and compares DDP with ZeRO-1, 2 and 3 for a 7B model on 4 GPUs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

bash "$root/examples/install_packages.sh" build
cd "$root"
echo "Building zerosim in $root/build/release"
cmake --preset release --log-level=WARNING >/dev/null
cmake --build --preset release --target zerosim
echo
exec bash "$root/examples/compare_stages.sh" "$root/build/release/sim/cli/zerosim"
