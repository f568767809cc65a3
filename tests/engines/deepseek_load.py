#!/usr/bin/env python3
"""deepseek_load.py SOURCE MOUNT - safetensors reads deepseek/: the ranks put together are the source, and FP8 experts its numbers.

DeepSeek's own reader is safetensors' load_model() into a class that no package has; that the names are those which it wants,
tests/oracle/engines.py knows from its converter's files.
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file

F4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def load(directory, rank, ranks):
    return load_file(directory / f"model{rank}-mp{ranks}.safetensors")


def raw(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(raw(a), raw(b))


def together(held):
    """What one tensor of those that the ranks have may be: the same in all, or blocks along the axis that is divided."""
    if all(same(held[0], other) for other in held):
        yield held[0]
    for axis in range(held[0].dim() if len(held) > 1 else 0):
        bytewise = held[0].element_size() == 1  # torch cannot put 8-bit floats together
        yield torch.cat([t.view(torch.uint8) if bytewise else t for t in held], axis).view(held[0].dtype)


def check_ranks(mount, whole, ranks):
    parts = [load(mount / f"deepseek/mp{ranks}", rank, ranks) for rank in range(ranks)]
    for name, tensor in whole.items():
        held = [part[name] for part in parts if name in part]
        assert any(same(tensor, c) for c in together(held)), f"{name}: {ranks} ranks are not one"
    assert set().union(*parts) == whole.keys()


def numbers(values, scales):
    """F4, two in a byte and a scale for 32, or F8 and a scale for 128 x 128, in F32."""
    if values.dtype == torch.float8_e4m3fn:
        each = scales.float().repeat_interleave(128, 0).repeat_interleave(128, 1)
        return values.float() * each
    codes = values.view(torch.uint8).int()
    return F4[torch.stack((codes & 15, codes >> 4), -1)].flatten(1) * scales.float().repeat_interleave(32, 1)


def check_fp8(mount, whole):
    """Equal but where a group's scale is so far below its block's greatest that the number is none of FP8's."""
    other = load(mount / "deepseek/mp1-fp8", 0, 1)
    assert other.keys() == whole.keys()
    experts = [name for name in whole if ".experts." in name and name.endswith(".weight")]
    for name in experts:
        scale = name.replace("weight", "scale")
        known, ours = numbers(whole[name], whole[scale]), numbers(other[name], other[scale])
        smallest = other[scale].float().repeat_interleave(128, 0).repeat_interleave(128, 1) * 2.0 ** -10
        assert ((known - ours).abs() <= smallest).all(), f"{name}: other numbers"
    print(f"{len(experts)} experts' matrices in FP8")


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    stored = [raw(t).numpy().tobytes() for path in source.glob("*.safetensors") for t in load_file(path).values()]
    whole = load(mount / "deepseek/mp1", 0, 1)
    known = set(stored)
    strangers = [name for name, t in whole.items() if raw(t).numpy().tobytes() not in known and "wo_a" not in name]
    assert not strangers, f"not in the source: {strangers}"
    check_ranks(mount, whole, 2)
    print(f"{len(whole)} tensors of {len(stored)}, in one rank and in two")
    if any(t.dtype == torch.float4_e2m1fn_x2 for t in whole.values()):
        check_fp8(mount, whole)


if __name__ == "__main__":
    main()
