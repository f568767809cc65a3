#!/usr/bin/env python3
"""together.py [FAMILY…] - all ranks together are the source, for every family of the zoo and every way to divide it.

By what `rankfs plan` says of each piece of each file: of every stored tensor each byte is read by as many ranks as every other
byte of it, by one at least; but for those that are known to be held by none, or in part, which are listed here. And by bytes,
in hf/: what the ranks have of a tensor are the slices of the source's along one axis, each as often as every other.

Which rank has which is for the oracle to say. Python 3, standard library only.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
GEN = ROOT / "tests/zoo/gen.py"
RANKFS = os.environ.get("RANKFS", str(ROOT / "build/release/rankfs"))
REFUSED = 32
LAYOUTS = ["vllm/tp1", "vllm/tp2", "vllm/tp4", "vllm/tp2-pp2", "vllm/tp2-ep", "vllm/tp4-ep", "hf/tp2", "hf/tp2-ep"]
SIZE = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2}

# Tensors that no rank of vLLM's reads, by what their names have in them. To add one: a row.
UNREAD = {
    "drafts, which engines load apart": r"^mtp\.|\.mtp\.|eh_proj|shared_head|enorm|hnorm",
    "masks and tables that engines compute": r"inv_freq$|\.attn\.bias$|masked_bias$",
    "the other parts' copy of what a joined module has once": r"(q_proj|k_proj|gate_proj|w1)\.weight_shape$",
    "what vLLM 0.32 drops": r"g_idx$",
    "a copy of another part's property of inputs": r"(q_proj|k_proj|gate_proj)\.(input_scale|input_zero_point)$",
}
# Tensors of which ranks read a part: elements behind the heads; numbers of groups, which begin again where a rank is a model
# of its own.
PARTLY = r"A_log$|(down_proj|o_proj|c_proj)\.g_idx$"
# Tensors that have q, k and v: more ranks may have k and v, which are replicated, than q.
JOINED = r"(qkv_proj|query_key_value|c_attn|wqkv|attn\.qkv)\."
# Sizes at which blocks of a small checkpoint divide.
ARGUMENTS = {"qwen3-235b-a22b-fp8": ["--head-dim", "128"], "minimax-m2.7": ["--head-dim", "128"]}


class Failed(Exception):
    """What is wrong, in a sentence."""


def run(*command):
    return subprocess.run([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)


def tensors_of(path):
    """{name: (dtype, shape, first byte, bytes)} of a safetensors file."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
    header.pop("__metadata__", None)
    return {k: (t["dtype"], t["shape"], 8 + n + t["data_offsets"][0], t["data_offsets"][1] - t["data_offsets"][0])
            for k, t in header.items()}


def sources(directory):
    files = sorted(p for p in directory.glob("*.safetensors"))
    if (directory / "model.safetensors.index.json").exists() or len(files) > 1:
        files = [p for p in files if not p.name.startswith("consolidated")]
    return {p.name: tensors_of(p) for p in files}


# ---------------------------------------------------------------- by the plan
def paint(counts, piece):
    """Count the reads of a piece, or of its parts, in each file that it reads."""
    for part in piece.get("parts", [piece]):
        if "file" in part:
            array, run_of = counts[part["file"]], part["run"]
            for i in range(part["count"]):
                first = part["from"] + i * part["stride"]
                array[first] += 1
                array[first + run_of] -= 1


def check_plan(source, layout, stored):
    done = run(RANKFS, "plan", source, layout, "--json")
    if done.returncode == REFUSED:
        return 0
    if done.returncode:
        raise Failed(f"{layout}: rankfs plan: exit {done.returncode}: {done.stderr.decode()}")
    counts = {name: collections.Counter() for name in stored}
    for file in json.loads(done.stdout)["files"]:
        for tensor in file.get("tensors", []):
            for piece in tensor["pieces"]:
                paint(counts, piece)
    for file, tensors in stored.items():
        check_file(layout, counts[file], tensors)
    return 1


def check_file(layout, steps, tensors):
    """Within each tensor the number of readers is the same everywhere: no step but at its ends."""
    depth, readers, inside, least = 0, {}, collections.defaultdict(list), {}
    at = sorted(steps)
    ends = sorted((first, first + n, name) for name, (_, _, first, n) in tensors.items() if n)
    i = 0
    for first, end, name in ends:
        while i < len(at) and at[i] <= first:
            depth += steps[at[i]]
            i += 1
        readers[name] = least[name] = depth
        while i < len(at) and at[i] < end:
            depth += steps[at[i]]
            if steps[at[i]]:
                inside[name].append(at[i] - first)
            least[name] = min(least[name], depth)
            i += 1
    for name, n in readers.items():
        if name in inside and not (re.search(PARTLY, name) or (re.search(JOINED, name) and least[name] > 0)):
            raise Failed(f"{layout}: {name}: some bytes have more readers than others, from {inside[name][:3]} on")
        if n == 0 and name not in inside and not any(re.search(known, name) for known in UNREAD.values()) and \
                not is_draft(name):
            raise Failed(f"{layout}: {name} is read by no rank")


def is_draft(name):
    """A layer beyond the last."""
    m = re.search(r"\blayers\.(\d+)\.", name)
    return bool(m) and int(m[1]) >= LAYERS[0]


LAYERS = [0]  # of the family that is looked at


# ---------------------------------------------------------------- by bytes
def read(path, tensor):
    with open(path, "rb") as f:
        f.seek(tensor[2])
        return f.read(tensor[3])


def slices(data, shape, axis, size):
    """Slices of a tensor along an axis, as a Counter."""
    inner = size
    for n in shape[axis + 1:]:
        inner *= n
    rows = [data[i:i + inner] for i in range(0, len(data), inner)]
    return collections.Counter(b"".join(rows[i::shape[axis]]) for i in range(shape[axis]))


def is_shared(whole, parts, dtype, shape):
    """Are these the slices of `whole` along some axis, each as often as every other?"""
    if all(data == whole for data, _ in parts):
        return True
    for axis in range(len(shape)):
        if any(other[:axis] + other[axis + 1:] != shape[:axis] + shape[axis + 1:] for _, other in parts):
            continue
        have = collections.Counter()
        for data, other in parts:
            have += slices(data, other, axis, SIZE.get(dtype, 1))
        want = slices(whole, shape, axis, SIZE.get(dtype, 1))
        times = {have[k] / n for k, n in want.items()}
        if have.keys() == want.keys() and len(times) == 1 and times.pop() >= 1:
            return True
    return False


def check_bytes(source, layout, stored, scratch):
    out = scratch / "export"
    done = run(RANKFS, "export", source, layout, out)
    if done.returncode == REFUSED:
        return 0
    if done.returncode:
        raise Failed(f"{layout}: rankfs export: exit {done.returncode}: {done.stderr.decode()}")
    ranks = collections.defaultdict(list)
    for rank in sorted(out.glob("rank-*")):
        for path in rank.glob("*.safetensors"):
            for name, tensor in tensors_of(path).items():
                ranks[name].append((read(path, tensor), tensor[1]))
    for file, tensors in stored.items():
        for name, tensor in tensors.items():
            if re.search(PARTLY, name) or \
                    (name not in ranks and re.search(UNREAD["masks and tables that engines compute"], name)):
                continue
            if not is_shared(read(source / file, tensor), ranks.get(name, [(b"", [])]), tensor[0], tensor[1]):
                raise Failed(f"{layout}: {name}: what {len(ranks[name])} ranks have of it is not the source")
    shutil.rmtree(out)
    return 1


def check_family(family, scratch):
    source = scratch / "source"
    subprocess.run([sys.executable, GEN, family, source, "--tiny", "--fill", *ARGUMENTS.get(family, [])], check=True, stdout=subprocess.DEVNULL)
    if run(RANKFS, "check", source).returncode == REFUSED:
        return 0
    config = json.loads((source / "config.json").read_text())
    text = config.get("text_config") or config
    LAYERS[0] = text.get("num_hidden_layers") or text.get("n_layer")
    stored = sources(source)
    checked = sum(check_plan(source, layout, stored) for layout in LAYOUTS)
    if family != "mistral-7b-v0.3":  # two namings of one model
        checked += sum(check_bytes(source, layout, stored, scratch) for layout in ("hf/tp2", "hf/tp4", "hf/tp2-ep"))
    shutil.rmtree(source)
    if checked < 3:
        raise Failed(f"only {checked} layouts of it work")
    return checked


def main():
    families = sys.argv[1:] or run(sys.executable, GEN, "--list").stdout.decode().split()
    failed = checked = 0
    for family in families:
        with tempfile.TemporaryDirectory(prefix="rankfs-together-") as scratch:
            try:
                checked += check_family(family, pathlib.Path(scratch))
            except Failed as e:
                failed += 1
                print(f"FAIL {family}: {e}", flush=True)
    print(f"{len(families)} families, of each all layouts together")
    print(f"{checked} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
