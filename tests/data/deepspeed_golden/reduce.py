"""Writes the reduced copies of this folder from full recordings.

    python3 reduce.py ../../../../shared/data/deepspeed_golden

Left out: what the comparison does not read (results other than the events of the three steps, and
call sites). Of most of stage 3, whose runs are long, only collectives are kept, not the markers that
explain them. One row a line.
"""

import json
import pathlib
import sys

PATTERNS = ["ds_s*", "ds014_s*", "ddp_*", "fsdp_*"]
WITH_MARKERS = {
    "ds014_s3_bf16_llama_lora_ckpt_prefetch0_reuse0_w2", "ds014_s3_bf16_mics2_w4",
    "ds_s3_bf16_gas4_reuse0_b20k_w2", "ds_s3_bf16_leaf_w2",
    "ds_s3_bf16_llama_lora_ckpt_live400k_reuse0_w2", "ds_s3_bf16_llama_lora_hpz2_w4",
    "ds_s3_bf16_moe_some_w2", "ds_s3_bf16_offload_w2", "ds_s3_bf16_tiedfunc_reuse0_w2",
}
LEFT_OUT = {
    "external_params", "inventory", "inventory_by_rank", "live_bytes", "losses", "module_calls",
    "optimizer_state_numel", "other_ranks_step2", "rank_digests", "rank_groups", "ranks_identical",
    "routing_other_ranks", "sites",
}


def compact(value):
    return json.dumps(value, separators=(",", ":"))


def text_of(recording):
    """Members on a line each, and so the elements of arrays of arrays."""
    members = []
    for key, value in recording.items():
        if key == "events":
            steps = ['"%s":%s' % (step, rows_text(rows)) for step, rows in value.items()]
            members.append('"events":{\n' + ",\n".join(steps) + "}")
        else:
            members.append('"%s":%s' % (key, rows_text(value)))
    return "{" + ",\n".join(members) + "}\n"


def rows_text(value):
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "[\n" + ",\n".join(compact(row) for row in value) + "]"
    return compact(value)


def main(source):
    target = pathlib.Path(__file__).parent
    for pattern in PATTERNS:
        for path in sorted(pathlib.Path(source).glob(pattern + ".json")):
            recording = json.loads(path.read_text())
            reduced = {k: v for k, v in recording.items() if k not in LEFT_OUT}
            reduced["events"] = {k: v for k, v in recording["events"].items() if k != "init"}
            if "_s3_" in path.name and path.stem not in WITH_MARKERS:
                for step, rows in reduced["events"].items():
                    if not isinstance(rows, str):
                        reduced["events"][step] = [row for row in rows if row[0] == "c"]
            (target / path.name).write_text(text_of(reduced))


if __name__ == "__main__":
    main(sys.argv[1])
