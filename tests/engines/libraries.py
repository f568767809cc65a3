#!/usr/bin/env python3
"""libraries.py SOURCE MOUNT - safetensors reads vllm/ and hf/, numpy reads tensors/; all agree with the source."""
import pathlib
import sys

import numpy
import torch
from safetensors.torch import load_file

LAYOUT = "tp2"
RANKS = 2


def load(paths):
    tensors = {}
    for path in sorted(paths):
        tensors.update(load_file(path))
    return tensors


def words(tensor):
    """A tensor as .npy can say it: numpy has no bfloat16, its words are served as uint16."""
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    whole = load(source.glob("model*.safetensors"))
    for rank in range(RANKS):
        ours = load((mount / f"vllm/{LAYOUT}").glob(f"model-rank-{rank}-part-*.safetensors"))
        folders = mount / f"tensors/{LAYOUT}/rank-{rank}"
        for name, tensor in ours.items():
            array = numpy.load(folders / (name.replace(".", "/") + ".npy"), mmap_mode="r")
            assert array.shape == tuple(tensor.shape), f"{name}: {array.shape} and {tensor.shape}"
            assert numpy.array_equal(array, words(tensor)), f"{name}: .npy and safetensors differ"
        hf = load((mount / f"hf/{LAYOUT}/rank-{rank}").glob("*.safetensors"))
        assert hf.keys() == whole.keys(), f"hf rank {rank}: {hf.keys() ^ whole.keys()}"
        for name, tensor in hf.items():
            axis = next((i for i, (n, m) in enumerate(zip(tensor.shape, whole[name].shape)) if n != m), None)
            expected = whole[name] if axis is None else whole[name].chunk(RANKS, axis)[rank]
            assert torch.equal(tensor, expected), f"{name}: hf/{LAYOUT}/rank-{rank} is not a slice of the source"
        print(f"rank {rank}: {len(ours)} tensors of vllm/ equal tensors/, {len(hf)} of hf/ are slices of the source")


if __name__ == "__main__":
    main()
