#!/usr/bin/env python3
"""sizes.py - other sizes than those of the cases: a device must make of them what the processor makes.

    sizes.py KERNEL-CASE DEVICE [RECIPE…]          compare, at some sizes that differ from run to run (SEED=N repeats one)
    sizes.py KERNEL-CASE bench [RECIPE…]           GB/s of each kernel on large matrices, against a copy on the device
    sizes.py KERNEL-CASE bench-host [RECIPE…]      the same without a GPU: to see that it works

The cases' matrices are repeated along their rows and columns, with the parameters that go with them; what a recipe refuses is
passed over. Nothing is known here of a recipe but its cases. A recipe that is not there yet is left out.
"""
import glob
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from check import HERE, arguments, parse

ROWS = ("logical_widths", "shard", "n", "size_n", "i")
COLUMNS = ("k", "size_k", "h")
CASES = 3  # of a recipe


def tile(shape, data, down, across, flat):
    """The tensor, its matrices repeated `down` and `across`, a vector `flat` times."""
    if not shape:
        return shape, data
    if len(shape) == 1:
        return [shape[0] * flat], data * flat
    count = 1
    for n in shape[:-1]:
        count *= n
    width, rows = len(data) // max(count, 1), shape[-2]
    lines = [data[i * width:(i + 1) * width] * across for i in range(count)]
    out = b"".join(b"".join(lines[i:i + rows]) * down for i in range(0, count, max(rows, 1)))
    return shape[:-2] + [rows * down, shape[-1] * across], out


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def scaled(params, rows, columns):
    out = {}
    for key, value in params.items():
        factor = rows if key in ROWS else columns if key in COLUMNS else 1
        if isinstance(value, list) and key in ROWS:
            value = [v * factor for v in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            value *= factor
        out[key] = value
    return out


def variants(tensors, params, down, across):
    """Ways to enlarge a case, the likeliest first."""
    for flat, (rows, columns) in itertools.product((1, down, across), ((down, across), (across, down), (1, 1))):
        yield ({name: (d,) + tile(s, b, down, across, flat) for name, (d, s, b) in tensors.items()
                if name.startswith("in.")}, scaled(params, rows, columns))


def make(tool, folder, recipe, params, *way):
    return subprocess.run([tool, folder, recipe] + list(arguments(params)) + list(way), capture_output=True)


def enlarged(tool, recipe, path, down, across, folder, way):
    """The case, so many times as large, through `way` in `folder`: its params and what came of it; None where refused."""
    with open(path, "rb") as f:
        tensors, meta = parse(f.read())
    for larger, params in variants(tensors, json.loads(meta["params"]), down, across):
        write(os.path.join(folder, "model.safetensors"), larger)
        made = make(tool, folder, recipe, params, way)
        if made.returncode == 0:
            return params, made
    return None


def is_known(tool, recipe):
    return subprocess.run([tool, "/", recipe], capture_output=True).returncode != 3


def compare(tool, device, recipe, path, chance):
    """-> how many sizes were equal, and what differs."""
    equal, wrong = 0, []
    for down, across in ((1, chance.randint(2, 5)), (chance.randint(2, 5), 1), (chance.randint(2, 4), chance.randint(2, 4))):
        with tempfile.TemporaryDirectory() as folder:
            want = enlarged(tool, recipe, path, down, across, folder, "device=cpu")
            if not want:
                continue
            params, want = want
            for way in ([], [f"chunks={chance.randint(1, 10**6)}"]):
                got = make(tool, folder, recipe, params, f"device={device}", *way)
                if got.returncode or got.stdout != want.stdout:
                    wrong.append(f"{os.path.basename(path)} x {down}, {across} {' '.join(way)}: "
                                 + (got.stderr.decode().strip() or "bytes differ"))
                else:
                    equal += 1
    return equal, wrong


def recipes(tool, wanted):
    for folder in sorted(glob.glob(os.path.join(HERE, "data", "*"))):
        recipe = os.path.basename(folder)
        if is_known(tool, recipe) and (not wanted or recipe in wanted):
            yield recipe, sorted(glob.glob(os.path.join(folder, "*.safetensors")))


def compare_all(tool, device, wanted):
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    chance, total, bad = random.Random(seed), 0, 0
    for recipe, paths in recipes(tool, wanted):
        equal = 0
        for path in chance.sample(paths, min(CASES, len(paths))):
            n, wrong = compare(tool, device, recipe, path, chance)
            equal += n
            bad += len(wrong)
            for text in wrong:
                print(f"    {recipe}: {text}")
        print(f"{recipe}: {equal} sizes equal" if equal else f"{recipe}: takes no other size")
        total += equal
    print(f"{total} of {total + bad} sizes equal on {device} (SEED={seed})")
    return bad != 0 or total == 0


def bench(tool, device, wanted):
    """Each case as large as it goes, beyond a GPU's caches; the largest of a transform is the one that counts."""
    best, target = {}, (256 if device == "bench" else 8) * 2**20
    for recipe, paths in recipes(tool, wanted):
        for path in paths[:1]:
            factor = max(1, int((target / max(os.path.getsize(path), 1)) ** 0.5))
            with tempfile.TemporaryDirectory() as folder:
                made = enlarged(tool, recipe, path, factor, factor, folder, f"device={device}")
            for line in made[1].stderr.decode().splitlines() if made else []:
                name, size, text = line.split("\t")
                if int(size) > best.get(name, (0, ""))[0]:
                    best[name] = (int(size), f"{recipe}: {text}")
    for name, (size, text) in sorted(best.items()):
        print(f"{name:14} {size / 2**20:8.1f} MiB  {text}")
    return not best


def main():
    tool, device, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    if device in ("cuda", "bench") and subprocess.run([tool, "--gpu"]).returncode:
        return 77
    if device.startswith("bench"):
        return bench(tool, device, wanted)
    return compare_all(tool, device, wanted)


if __name__ == "__main__":
    sys.exit(main())
