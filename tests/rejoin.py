#!/usr/bin/env python3
"""rejoin.py SOURCE VIEW - put a Llama's ranks back together and compare with the checkpoint they came from.

VIEW is an engine directory such as MOUNT/vllm/tp2. Rows (q, k, v, gate, up, embeddings) are laid one after another,
columns (o, down) side by side; norms are the same on every rank. Standard library only: a matrix is a list of rows of
bytes.
"""
import json
import pathlib
import re
import sys

SIZE = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1}


def load(paths):
    """{name: rows} of all tensors of some safetensors files; a vector is one row."""
    tensors = {}
    for path in paths:
        data = path.read_bytes()
        n = int.from_bytes(data[:8], "little")
        for name, t in json.loads(data[8:8 + n]).items():
            if name != "__metadata__":
                first, last = (8 + n + off for off in t["data_offsets"])
                width = t["shape"][-1] * SIZE[t["dtype"]] if t["shape"] else last - first
                tensors[name] = [data[i:i + width] for i in range(first, last, width)]
    return tensors


def sizes(config):
    """Rows of q, k and v, and of gate and up, in the whole model."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv = config["num_key_value_heads"] * head_dim
    return {"q_proj": heads * head_dim, "k_proj": kv, "v_proj": kv,
            "gate_proj": config["intermediate_size"], "up_proj": config["intermediate_size"]}


FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def rejoin(name, ranks, rows):
    """The source's rows of a tensor, from those of its ranks."""
    for fused, members in FUSED.items():
        for i, member in enumerate(members):
            if f".{member}." in name:
                first = sum(rows[m] for m in members[:i]) // len(ranks)
                last = first + rows[member] // len(ranks)
                return [row for rank in ranks for row in rank[name.replace(member, fused)][first:last]]
    parts = [rank[name] for rank in ranks]
    if re.search(r"\.(o_proj|down_proj)\.", name):
        return [b"".join(row) for row in zip(*parts)]
    if re.search(r"norm\.", name):
        if any(part != parts[0] for part in parts):
            sys.exit(f"{name}: differs between ranks")
        return parts[0]
    return [row for part in parts for row in part]


def main():
    source, view = map(pathlib.Path, sys.argv[1:3])
    n_ranks = int(re.search(r"tp(\d+)", view.name)[1])
    rows = sizes(json.loads((source / "config.json").read_text()))
    whole = load(sorted(source.glob("model-*.safetensors")) or [source / "model.safetensors"])
    ranks = [load(sorted(view.glob(f"model-rank-{r}-part-*.safetensors"))) for r in range(n_ranks)]
    size = 0
    for name, expected in whole.items():
        ours = rejoin(name, ranks, rows)
        padding = ours[len(expected):]  # of the vocabulary
        if ours[:len(expected)] != expected or any(any(row) for row in padding):
            sys.exit(f"{name}: differs from the source")
        size += sum(map(len, expected))
    print(f"{len(whole)} tensors, {size:,} bytes: the {n_ranks} ranks together equal the source")


if __name__ == "__main__":
    main()
