#!/usr/bin/env python3
"""check.py - every case of what vLLM's own post-processing makes of its inputs, through the recipes, bit for bit.

    check.py KERNEL-CASE [-v] [--gpu] [RECIPE[/CASE]…]

Each case is made whole and in random chunks: by the processor, unit by unit as a GPU computes it, by the backend for GPUs run on
the processor, and by that with a device that fails in the middle; with --gpu, by a GPU (exit 77 if there is none). Tensors that the engine
holds as a transposed view (strides in the case's metadata) are compared as the memory that they are, of a matrix with what pads its
columns: zeros. Scales that a case has before FlashInfer's interleaving are interleaved here. Prints a line for each recipe and "N of M
cases equal"; the exit status is 1 unless all are.
"""
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "I16": 2, "U16": 2,
         "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "F64": 8}
BEFORE = "_before_interleave"
WAYS = [["device=cpu"], ["device=cpu", "chunks=7"], ["device=units"], ["device=units", "chunks=11"],
        ["device=cuda-host"], ["device=cuda-host", "chunks=13"],
        ["device=cuda-host", "full=1"], ["device=cuda-host", "full=7"], ["device=cuda-host", "lost=2"],
        ["device=cuda-host", "lost=9", "chunks=17"]]
GPU_WAYS = [["device=cuda"]] + [["device=cuda", f"chunks={seed}"] for seed in (19, 23, 29)]


def parse(data):
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    meta = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        a, b = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + n + a:8 + n + b])
    return tensors, meta


def memory(dtype, shape, strides, data):
    """A view's elements in the order of its memory: axes by stride, the largest first. -> shape, bytes"""
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    size = SIZES[dtype]
    step = [size] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        step[axis] = step[axis + 1] * shape[axis + 1]
    out = bytearray()

    def walk(depth, at):
        if depth == len(order):
            out.extend(data[at:at + size])
            return
        axis = order[depth]
        for i in range(shape[axis]):
            walk(depth + 1, at + i * step[axis])

    walk(0, 0)
    return [shape[axis] for axis in order], bytes(out)


def pad_rows(dtype, shape, data, pitch):
    """A matrix whose rows lie `pitch` elements apart, zeros between them. -> shape, bytes"""
    row, gap = shape[1] * SIZES[dtype], bytes((pitch - shape[1]) * SIZES[dtype])
    return [shape[0], pitch], b"".join(data[i * row:(i + 1) * row] + gap for i in range(shape[0]))


def interleave(shape, data):
    """Scales of experts, a byte each, in tiles of 128 rows and 4 columns (slicer/transforms/swizzle.h). -> shape, bytes"""
    n, rows, cols = shape
    padded_rows, padded_cols = -(-rows // 128) * 128, -(-cols // 4) * 4
    size = padded_rows * padded_cols
    out = bytearray(n * size)
    for i, byte in enumerate(data):
        expert, m, k = i // (rows * cols), i // cols % rows, i % cols
        tile = m // 128 * (padded_cols // 4) + k // 4
        out[expert * size + (tile * 32 + m % 32) * 16 + m // 32 % 4 * 4 + k % 4] = byte
    return [n, padded_rows, padded_cols], bytes(out)


def expected(tensors, strides):
    want = {}
    for name, (dtype, shape, data) in tensors.items():
        if not name.startswith("out."):
            continue
        if name in strides and strides[name] != sorted(strides[name], reverse=True):
            shape, data = memory(dtype, shape, strides[name], data)
            pitch = max(strides[name])
            if len(shape) == 2 and pitch > shape[1]:
                shape, data = pad_rows(dtype, shape, data, pitch)
        if name.endswith(BEFORE):
            name = name[:-len(BEFORE)]
            shape, data = interleave(shape, data)
        want[name[4:]] = (dtype, shape, data)
    return want


def arguments(params):
    for key, value in params.items():
        if isinstance(value, bool):
            value = int(value)
        if isinstance(value, list):
            value = ",".join(map(str, value))
        if value is not None:
            yield f"{key}={value}"


def differences(got, want):
    if sorted(got) != sorted(want):
        yield f"tensors {sorted(got)}, not {sorted(want)}"
        return
    for name, (dtype, shape, data) in want.items():
        if got[name][:2] != (dtype, shape):
            yield f"{name} is {got[name][0]}{got[name][1]}, not {dtype}{shape}"
        elif got[name][2] != data:
            where = [i for i, (x, y) in enumerate(zip(got[name][2], data)) if x != y]
            yield f"{name}: {len(where)} of {len(data)} bytes differ, the first at {where[0]}"


# Cases that were made by vLLM's own code on a processor, where a GPU computes otherwise.
ON_CPU = ["int8_w8a8"]


def run(tool, path, recipe, ways):
    with open(path, "rb") as f:
        tensors, meta = parse(f.read())
    params, strides = json.loads(meta["params"]), json.loads(meta["strides"])
    if "aligned_mn" in params:  # one column has no stride
        strides["out.scale"] = [1, params["aligned_mn"]]
    want = expected(tensors, strides)
    params = list(arguments(params))
    if recipe.endswith("_cpu") or recipe in ON_CPU:
        recipe = recipe.removesuffix("_cpu")
        params.append("cpu=1")
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, os.path.join(folder, "model.safetensors"))
        for way in ways:
            made = subprocess.run([tool, folder, recipe] + params + way, capture_output=True)
            if made.returncode:
                return made.stderr.decode().strip()
            wrong = list(differences(parse(made.stdout)[0], want))
            if wrong:
                return f"{' '.join(way)}: " + "; ".join(wrong)
    return None


def main():
    tool, wanted = sys.argv[1], [a for a in sys.argv[2:] if not a.startswith("-")]
    ways = GPU_WAYS if "--gpu" in sys.argv else WAYS
    if "--gpu" in sys.argv and subprocess.run([tool, "--gpu"]).returncode:
        return 77
    cases = equal = 0
    for folder in sorted(glob.glob(os.path.join(HERE, "data", "*"))):
        recipe = os.path.basename(folder)
        failures, n = [], 0
        for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
            case = os.path.basename(path)[:-len(".safetensors")]
            if wanted and recipe not in wanted and f"{recipe}/{case}" not in wanted:
                continue
            n += 1
            failure = run(tool, path, recipe, ways)
            if failure:
                failures.append(f"{case}: {failure}")
        if n:
            print(f"{recipe}: {n - len(failures)} of {n} equal")
        for failure in failures if "-v" in sys.argv else failures[:2]:
            print(f"    {failure}")
        cases += n
        equal += n - len(failures)
    print(f"{equal} of {cases} cases equal")
    return equal != cases or cases == 0


if __name__ == "__main__":
    sys.exit(main())
