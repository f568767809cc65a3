#!/usr/bin/env python3
"""torch_load.py SOURCE MOUNT - torch reads dcp/ back to the source's tensors, and of a Llama meta/'s archives to slices of them."""
import json
import pathlib
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader

RANKS = 2


def words(tensor):
    return tensor.reshape(-1).view(torch.uint8)


def check_dcp(source, directory):
    state = {name: torch.zeros_like(tensor) for name, tensor in source.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(str(directory)))
    for name, tensor in source.items():
        assert torch.equal(words(state[name]), words(tensor)), f"{name}: {directory} reads back to something else"
    print(f"{directory.name}: {len(state)} tensors read back")


def halves_to_pairs(tensor, heads):
    """Rows of each head as Meta has them."""
    return tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)


def expected(source, config):
    """{Meta's name: (whole tensor, the axis that ranks share)}"""
    embedding = source["model.embed_tokens.weight"]
    tensors = {"tok_embeddings.weight": (embedding, 0), "norm.weight": (source["model.norm.weight"], None),
               "output.weight": (source.get("lm_head.weight", embedding), 0)}
    rows = (("attention.wv", "self_attn.v_proj", 0), ("attention.wo", "self_attn.o_proj", 1),
            ("feed_forward.w1", "mlp.gate_proj", 0), ("feed_forward.w2", "mlp.down_proj", 1),
            ("feed_forward.w3", "mlp.up_proj", 0), ("attention_norm", "input_layernorm", None),
            ("ffn_norm", "post_attention_layernorm", None))
    for layer in range(config["num_hidden_layers"]):
        ours, theirs = f"model.layers.{layer}.", f"layers.{layer}."
        for held, stored, axis in rows:
            tensors[f"{theirs}{held}.weight"] = source[f"{ours}{stored}.weight"], axis
        for key, heads in (("q", config["num_attention_heads"]), ("k", config["num_key_value_heads"])):
            whole = halves_to_pairs(source[f"{ours}self_attn.{key}_proj.weight"], heads)
            tensors[f"{theirs}attention.w{key}.weight"] = whole, 0
    return tensors


def check_meta(source, config, directory):
    whole = expected(source, config)
    for rank in range(RANKS):
        state = torch.load(directory / f"consolidated.{rank:02}.pth", map_location="cpu", mmap=True, weights_only=True)
        assert state.keys() == whole.keys(), f"{state.keys() ^ whole.keys()}"
        for name, (tensor, axis) in whole.items():
            part = tensor if axis is None else tensor.chunk(RANKS, axis)[rank]
            assert torch.equal(state[name], part), f"{name}: rank {rank} has something else"
    print(f"{directory.name}: {RANKS} ranks of {len(whole)} tensors")


def main():
    directory, mount = map(pathlib.Path, sys.argv[1:3])
    source = {}
    for path in directory.glob("model*.safetensors"):
        source.update(load_file(path))
    for layout in ("tp1", "tp2"):
        check_dcp(source, mount / "dcp" / layout)
    config = json.loads((directory / "config.json").read_text())
    if config["architectures"] == ["LlamaForCausalLM"]:
        check_meta(source, config, mount / f"meta/mp{RANKS}")


if __name__ == "__main__":
    main()
