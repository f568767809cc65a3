#!/usr/bin/env python3
"""states.py [--engine [--write]] [FAMILY LAYOUT RANK] - ranks of kernel/ against what vLLM 0.32 holds of them once it has processed
its weights.

states.tsv has a line for each: family (and arguments of tests/zoo/gen.py), layout, rank, number of tensors, and a digest of all names,
dtypes, shapes and bytes. Without an option the exports' digests are compared, which needs no more than Python.

With --engine vLLM itself makes each state (engine.py), which is compared tensor by tensor, with what it sees turned; with --write as
well, digests of ranks that are equal are written. ENGINES is the virtual environment (tests/engines/install.sh humming-kernels).
What vLLM has and kernel/ leaves out: the scales of the KV cache, and tensors without elements.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RANKFS = os.environ.get("RANKFS", str(ROOT / "build/release/rankfs"))
TABLE = HERE / "states.tsv"
CACHE_SCALES = re.compile(r"\._?(k|v|q|prob)_(scale|zero_point)$")
ONLINE = {"fp8": "fp8_per_tensor", "fp8c": "fp8_per_channel", "fp8b": "fp8_per_block"}


def source(family):
    path = ROOT / "build/zoo" / ("kernel-" + re.sub(r"[^\w.-]", "", family))
    if not path.exists():
        name, *args = family.split()
        subprocess.run([sys.executable, ROOT / "tests/zoo/gen.py", name, path, "--tiny", "--fill", *args], check=True,
                       stdout=subprocess.DEVNULL)
    return str(path)


def read(path, found):
    """Tensors of a safetensors file, as (dtype, shape, bytes); gives its metadata."""
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    meta = header.pop("__metadata__", {})
    for name, t in header.items():
        begin, end = t["data_offsets"]
        found[name] = (t["dtype"], t["shape"], data[8 + length + begin:8 + length + end])
    return meta


def export(family, layout, rank):
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run([RANKFS, "export", source(family), f"kernel/{layout}/rank-{rank}", out], capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip()
        ours = {}
        for path in pathlib.Path(out).rglob("*.safetensors"):
            read(path, ours)
        manifest, = pathlib.Path(out).rglob("manifest.json")
        views = {name for name, said in json.loads(manifest.read_text())["tensors"].items() if "view" in said}
        return ours, views


def digest(tensors):
    whole = hashlib.sha256()
    for name in sorted(tensors):
        dtype, shape, data = tensors[name]
        whole.update(f"{name} {dtype} {shape} {hashlib.sha256(data).hexdigest()}\n".encode())
    return whole.hexdigest()


# ---- vLLM's own ----

def options(layout):
    words = layout.split("-")
    online = next((w for w in words if w in ONLINE), None)
    gpu = next((w for w in words if w.startswith("sm")), "sm90")
    kernels = next((w for w in words if w in ("marlin", "cutlass", "triton", "flashinfer", "trtllm")), "auto")
    more = {"quantization": ONLINE[online]} if online else {}
    if "ep" in words:
        more["enable_expert_parallel"] = True
    if "f16" in words:
        more["dtype"] = "float16"
    return gpu, kernels, int(words[0].removeprefix("tp")), more


def engine(family, layout, rank):
    gpu, kernels, tp, more = options(layout)
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    # What messages say for latent attention of FP8 blocks.
    if kernels in ("triton", "cutlass"):
        env["VLLM_USE_DEEP_GEMM"] = "0"
    with tempfile.TemporaryDirectory() as out:
        path = pathlib.Path(out) / "state.safetensors"
        done = subprocess.run([f"{os.environ['ENGINES']}/bin/python", HERE / "engine.py", gpu, kernels.upper(), source(family), path,
                               str(tp), str(rank), json.dumps(more)], capture_output=True, text=True, env=env)
        if not path.exists():
            return "vLLM fails: " + (done.stderr.strip().splitlines() or ["?"])[-1]
        theirs = {}
        meta = read(path, theirs)
    return theirs, json.loads(meta["also"]), json.loads(meta["turned"])


def differences(ours, views, theirs, also, turned):
    for name, others in also.items():
        ours_name = next((o for o in others if o in ours and name not in ours), None)
        if ours_name and name in theirs:
            theirs[ours_name] = theirs.pop(name)
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours:
            if not CACHE_SCALES.search(name) and theirs[name][2]:
                yield f"{name} is missing"
        elif name not in theirs:
            yield f"{name} is not vLLM's"
        elif ours[name][:2] != theirs[name][:2]:
            yield f"{name}: {ours[name][:2]}, not {theirs[name][:2]}"
        elif ours[name][2] != theirs[name][2]:
            n = sum(a != b for a, b in zip(ours[name][2], theirs[name][2]))
            yield f"{name}: {n} of {len(ours[name][2])} bytes differ"
        elif (name in views) != (name in turned):
            yield f"{name}: vLLM sees it{' not' if name in views else ''} with swapped axes"


# ---- both ----

def check(line, with_engine):
    """The line as it should be, and what is wrong."""
    family, layout, rank, *known = line.split("\t")
    ours = export(family, layout, rank)
    if isinstance(ours, str):
        return line, [ours]
    ours, views = ours
    now = "\t".join((family, layout, rank, str(len(ours)), digest(ours)))
    made = engine(family, layout, rank) if with_engine else None
    if made:
        wrong = [made] if isinstance(made, str) else list(differences(ours, views, *made))
    else:
        wrong = [] if line == now else ["another digest: it differs from what vLLM holds"]
    return line if wrong else now, wrong


def main():
    with_engine, write = "--engine" in sys.argv[1:], "--write" in sys.argv[1:]
    cases = [a for a in sys.argv[1:] if not a.startswith("--")]
    lines = TABLE.read_text().splitlines()
    if cases:
        lines = [line for line in lines if line.split("\t")[:3] == cases] or ["\t".join(cases)]
    for family in sorted({line.split("\t")[0] for line in lines}):
        source(family)
    failed, written = 0, {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for line, (now, wrong) in zip(lines, pool.map(lambda line: check(line, with_engine), lines)):
            for what in wrong[:6]:
                print(f"FAIL {' '.join(line.split(chr(9))[:3])}: {what}", flush=True)
            failed += bool(wrong)
            written |= {tuple(now.split("\t")[:3]): now}
    if with_engine and write:
        table = {tuple(line.split("\t")[:3]): line for line in TABLE.read_text().splitlines()}
        table |= {key: line for key, line in written.items() if line.count("\t") == 4}
        TABLE.write_text("".join(f"{line}\n" for line in table.values()))
    print(f"states: {len(lines) - failed} equal, {failed} not")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
