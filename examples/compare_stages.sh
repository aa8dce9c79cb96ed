#!/usr/bin/env bash
# Compares DDP with ZeRO-1, 2 and 3, as the three DeepSpeed files beside this script set them up,
# for Llama-2-7B on 4 A100 of 80 GB.
#
#   compare_stages.sh [path/to/zerosim] [more flags for `zerosim compare`]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
zerosim=${1:-zerosim}
exec "$zerosim" compare --model llama-2-7b --cluster dgx-a100-80 --gpus-per-node 4 \
  --seq 2048 --micro-batch 4 --activation-checkpointing full --strategies ddp \
  --ds-config "$here/ds_zero1.json" "$here/ds_zero2.json" "$here/ds_zero3.json" "${@:2}"
