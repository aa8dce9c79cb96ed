#!/bin/bash
# Rewrites tests/golden/*/expected.txt with what the executable prints now. Review the diff.
#
#     bash tests/golden/update.sh build/dev/sim/cli/zerosim [CASE...]
set -euo pipefail

if [ $# -lt 1 ] || [ ! -x "$1" ]; then
  echo "usage: bash tests/golden/update.sh PATH_OF_ZEROSIM [CASE...]" >&2
  exit 2
fi
zerosim=$(realpath "$1")
shift
cd "$(dirname "$0")"
for case in "${@:-*/}"; do
  for folder in $case; do
    read -r -a words <"$folder/command"
    (cd "$folder" && "$zerosim" "${words[@]}" >expected.txt)
    echo "wrote $folder"
  done
done
