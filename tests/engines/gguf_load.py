#!/usr/bin/env python3
"""gguf_load.py SOURCE MOUNT - the package gguf reads gguf/: each tensor of the source is there under the name that its map has."""
import json
import pathlib
import sys

import gguf
import torch
from safetensors.torch import load_file

ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}
PAIRED = {"llama": {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}}


def halves_to_pairs(tensor, heads):
    return tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    config = json.loads((source / "config.json").read_text())
    reader = gguf.GGUFReader(mount / "gguf/model.gguf")
    arch = reader.get_field("general.architecture").contents()
    names = gguf.get_tensor_name_map(ARCHITECTURES[arch], config["num_hidden_layers"])
    held = {t.name: t for t in reader.tensors}
    for path in source.glob("model*.safetensors"):
        for name, tensor in load_file(path).items():
            ours = held.pop(names.get_name(name, (".weight", ".bias")))
            heads = PAIRED.get(arch, {}).get(name.split(".")[-2])
            expected = halves_to_pairs(tensor, config[heads]) if heads else tensor
            expected = expected if tensor.dim() > 1 else tensor.float()
            assert ours.shape.tolist() == list(tensor.shape)[::-1], f"{name}: {ours.shape}"
            data = torch.from_numpy(ours.data.copy()).view(torch.uint8).reshape(-1)
            assert torch.equal(data, expected.contiguous().view(torch.uint8).reshape(-1)), f"{name}: other bytes"
    assert not held.keys() - {"rope_freqs.weight"}, f"nobody's: {held.keys()}"
    print(f"{arch}: {len(reader.tensors)} tensors, {len(reader.fields)} keys")


if __name__ == "__main__":
    main()
