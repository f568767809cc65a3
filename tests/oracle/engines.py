#!/usr/bin/env python3
"""engines.py [PATH… | --write [ORACLE]] - what rankfs serves to engines other than vLLM, against what their own converters and loaders made.

engines.tsv has one line for each thing that must be equal:

    family  gen.py arguments  path  kind  name  digest

"file": sha256 of the whole file `name` in the directory `path`. Other kinds are digests over tensors, for engines whose own
files are not the same from run to run, or that slice in memory: lines "name dtype [d0,d1] sha256\\n", sorted (make_digests.py).

    blocks    all tensors of the weight files in `path`, each name with the offsets that DCP_SHARDING_INFO gives it; `name` is "-"
    whole     the blocks put together are the tensors of the source: no digest
    slices    all tensors but the embedding, experts put together as transformers holds them
    gguf      keys and tensors of the file `name`, whatever their order (gguf_file.py)

For each path: `rankfs export`, `cat` of every file, read(2) and mmap on a mount give the same bytes, and those are compared.
Arguments choose the lines whose path begins with one of them. --write makes the table anew from ORACLE, which has a
directory of records per engine (default ../shared/oracle).

Python 3, standard library only. RANKFS is the binary.
"""
import collections
import hashlib
import itertools
import json
import math
import mmap
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import gguf_file
from check import Failed, checkpoint, parse, rankfs, said
from make_digests import digest

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "engines.tsv"

Line = collections.namedtuple("Line", "family arguments path kind name digest")


# ---------------------------------------------------------------- the table, from records of the engines
def records(oracle, engine):
    """(family, layouts) of each record of an engine that is to be followed."""
    for path in sorted((oracle / engine).glob("*.json")):
        record = json.loads(path.read_text())
        if "warning" not in record:
            yield path.stem, record["layouts"]


def whole_files(family, path, files):
    """Without the tokenizer's, which generated checkpoints do not have."""
    for name, file in files.items():
        if not name.startswith("tokenizer"):
            yield Line(family, "--tiny", path, "file", name, file["sha256_file"])


def deepseek_lines(oracle):
    for stem, layouts in records(oracle, "deepseek"):
        family = stem.rsplit(".v", 1)[0]
        for layout, files in layouts.items():
            yield from whole_files(family, f"deepseek/{layout}", files)


def airllm_lines(oracle):
    for family, layouts in records(oracle, "airllm"):
        for layout, files in layouts.items():
            yield from whole_files(family, "airllm", {f"{layout}/{name}": file for name, file in files.items()})


def dcp_lines(oracle):
    for family, layouts in records(oracle, "dcp"):
        blocks = {}
        for name, file in layouts["tp2-plain"].items():
            blocks.update(blocks_of(file["tensors"], file["metadata"]))
        yield Line(family, "--tiny", "dcp/tp2", "blocks", "-", digest(blocks))
    for family in ("llama-3.1-8b", "phi-3-mini-4k", "gpt2", "deepseek-v3", "gpt-oss-20b", "qwen2.5-7b-instruct-gptq-int4"):
        yield Line(family, "--tiny", "dcp/tp2", "whole", "-", "-")


def serverlessllm_lines(oracle):
    for stem, layouts in records(oracle, "serverlessllm"):
        for layout, ranks in layouts.items() if stem.endswith(".vllm") else ():
            for rank, files in ranks.items():
                yield from whole_files(stem.removesuffix(".vllm"), f"serverlessllm/{layout}",
                                       {f"{rank}/{name}": file for name, file in files.items()})


def gpt_oss_lines(oracle):
    for family, layouts in records(oracle, "gpt-oss"):
        yield from whole_files(family, "gpt-oss", layouts["original"])


def transformers_lines(oracle):
    """Slices of a tensor-parallel model, which keeps the embedding whole and makes its rotary tables itself."""
    for family, layouts in records(oracle, "transformers"):
        for rank, held in layouts["tp2"].items():
            tensors = {n: t for n, t in held["tensors"].items() if not re.search("embed_tokens|rotary_emb", n)}
            yield Line(family, "--tiny", f"hf/tp2/{rank.replace('rank', 'rank-')}", "slices", "-", digest(tensors))


# To add an engine: a function above that gives its lines, and its name here.
MAKERS = [deepseek_lines, airllm_lines, dcp_lines, serverlessllm_lines, gpt_oss_lines, transformers_lines]


def write_table(oracle):
    kept = [line for line in load_table([]) if line.kind == "gguf"]  # gguf_file.py makes them
    lines = sorted({"\t".join(line) + "\n" for lines in (kept, *(make(oracle) for make in MAKERS)) for line in lines})
    TABLE.write_text("".join(lines))
    print(f"{len(lines)} lines")


# ---------------------------------------------------------------- what rankfs serves
def walk(directory):
    """{name relative to the directory: bytes} of all files below it."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def mapped(path):
    if path.stat().st_size == 0:
        return b""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as data:
        return bytes(data)


def served(source, path, scratch, mountpoint):
    """The files of a layout's directory, exported, and the same by every other way."""
    exported = scratch / "export"
    done = rankfs("export", source, path, exported)
    if done.returncode:
        raise Failed(f"{path}: rankfs export: exit {done.returncode}: {said(done)}")
    files = walk(exported)
    shutil.rmtree(exported)
    for name, data in files.items():
        if rankfs("cat", source, f"{path}/{name}").stdout != data:
            raise Failed(f"{path}/{name}: cat and export differ")
    if mountpoint:
        if walk(mountpoint / path) != files:
            raise Failed(f"{path}: export and the mount differ")
        for name, data in files.items():
            if mapped(mountpoint / path / name) != data:
                raise Failed(f"{path}/{name}: mmap and read differ")
    return files


def tensors_of(files):
    """(tensors, metadata) of each weight file."""
    for name, data in files.items():
        if name.endswith(".safetensors"):
            header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
            yield parse(data, name), header.get("__metadata__", {})


def raw(data):
    """(name, dtype, shape, bytes) of each tensor of a safetensors file."""
    n = int.from_bytes(data[:8], "little")
    for name, t in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            first, last = t["data_offsets"]
            yield name, t["dtype"], t["shape"], data[8 + n + first:8 + n + last]


def put(whole, shape, block, block_shape, offsets):
    """Copy a block into a row-major tensor, run by run."""
    if not block:
        return
    size = len(whole) // math.prod(shape)
    last = len(shape) - 1
    while last > 0 and block_shape[last] == shape[last]:
        last -= 1
    run = math.prod(block_shape[last:]) * size
    for i, index in enumerate(itertools.product(*(range(n) for n in block_shape[:max(last, 0)]))):
        at = 0
        for axis, n in enumerate(shape):
            at = at * n + offsets[axis] + (index[axis] if axis < last else 0)
        whole[at * size:at * size + run] = block[i * run:(i + 1) * run]


def blocks_of(tensors, metadata):
    """The same tensors, each name with where the block begins."""
    where = json.loads(metadata["DCP_SHARDING_INFO"])
    return {f"{name} {where[name]['saved_offsets']}": t for name, t in tensors.items()}


# ---------------------------------------------------------------- comparing, by kind
def check_file(line, files, _):
    if line.name not in files:
        raise Failed(f"{line.path}: no file {line.name}")
    if hashlib.sha256(files[line.name]).hexdigest() != line.digest:
        raise Failed(f"{line.path}/{line.name} differs")


def check_blocks(line, files, _):
    blocks = {}
    for tensors, metadata in tensors_of(files):
        for name, block in blocks_of(tensors, metadata).items():
            if name in blocks:
                raise Failed(f"{line.path}: {name} is there twice")
            blocks[name] = block
    if digest(blocks) != line.digest:
        raise Failed(f"{line.path}: {len(blocks)} blocks differ")


def check_slices(line, files, _):
    held, experts = {}, collections.defaultdict(dict)
    for data in (data for name, data in files.items() if name.endswith(".safetensors")):
        for name, dtype, shape, tensor in raw(data):
            if m := re.fullmatch(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", name):
                experts[m[1]][int(m[2]), m[3]] = dtype, shape, tensor
            elif "embed_tokens" not in name:
                held[name] = {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(tensor).hexdigest()}
    for module, parts in experts.items():
        held[f"{module}.gate_up_proj"] = stack(parts, ("gate", "up"))
        held[f"{module}.down_proj"] = stack(parts, ("down",))
    if digest(held) != line.digest:
        raise Failed(f"{line.path}: {len(held)} slices differ")


def stack(parts, projections):
    """One tensor of all experts: of each its projections one below another."""
    n = len({expert for expert, _ in parts})
    dtype, shape, _ = parts[0, projections[0]]
    data = b"".join(parts[expert, projection][2] for expert in range(n) for projection in projections)
    return {"dtype": dtype, "shape": [n, len(projections) * shape[0], shape[1]], "sha256": hashlib.sha256(data).hexdigest()}


def check_whole(line, files, source):
    """The blocks, put together by nothing but their offsets, are the tensors of the source."""
    want = {}
    for path in source.glob("*.safetensors"):
        for name, dtype, shape, data in raw(path.read_bytes()):
            want[name] = (dtype, shape, data)
    have = {name: bytearray(len(data)) for name, (_, _, data) in want.items()}
    covered = collections.Counter()
    for name, data in files.items():
        if not name.endswith(".safetensors"):
            continue
        header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
        where = json.loads(header["__metadata__"]["DCP_SHARDING_INFO"])
        for tensor, dtype, shape, block in raw(data):
            if dtype != want[tensor][0]:
                raise Failed(f"{line.path}: {tensor} is {dtype}, not {want[tensor][0]}")
            put(have[tensor], want[tensor][1], block, shape, where[tensor]["saved_offsets"])
            covered[tensor] += len(block)
    for name, (_, _, data) in want.items():
        if have[name] != data or covered[name] != len(data):
            raise Failed(f"{line.path}: {name}: {covered[name]} bytes of {len(data)}, or not the right ones")


def check_gguf(line, files, _):
    try:
        if gguf_file.digest(files[line.name]) != line.digest:
            raise Failed(f"{line.path}: keys or tensors differ from the converter's")
    except (AssertionError, IndexError, KeyError) as e:
        raise Failed(f"{line.path}/{line.name}: {e}") from e


# To add a kind: its function above and a row here.
KINDS = {"file": check_file, "blocks": check_blocks, "whole": check_whole, "slices": check_slices, "gguf": check_gguf}


def check_path(source, lines, scratch, mountpoint):
    """How many of a path's lines are right, and the words for those that are not."""
    try:
        files = served(source, lines[0].path, scratch, mountpoint)
    except Failed as e:
        return 0, [str(e)]
    wrong = []
    for line in lines:
        try:
            KINDS[line.kind](line, files, source)
        except Failed as e:
            wrong.append(str(e))
    return len(lines) - len(wrong), wrong


def check_source(source, lines, can_mount):
    """The same for all paths of one checkpoint."""
    passed, wrong = 0, []
    with tempfile.TemporaryDirectory(prefix="rankfs-engines-") as name:
        scratch = pathlib.Path(name)
        mountpoint = scratch / "mnt" if can_mount else None
        if mountpoint:
            mountpoint.mkdir()
            done = rankfs(source, mountpoint)
            if done.returncode:
                return 0, [f"mount: {said(done)}"]
        try:
            for path in sorted({line.path for line in lines}):
                right, words = check_path(source, [line for line in lines if line.path == path], scratch, mountpoint)
                passed += right
                wrong += words
        finally:
            if mountpoint:
                subprocess.run(["fusermount3", "-u", mountpoint], check=True)
    return passed, wrong


def load_table(chosen):
    lines = [Line(*text.split("\t")) for text in TABLE.read_text().splitlines()]
    return [line for line in lines if not chosen or line.path.startswith(tuple(chosen))]


def main():
    if sys.argv[1:2] == ["--write"]:
        return write_table(pathlib.Path(sys.argv[2]) if sys.argv[2:] else HERE.parents[2] / "shared/oracle")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unmounts on the way out
    can_mount = os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("fusermount3") is not None
    by_source = collections.defaultdict(list)
    for line in load_table(sys.argv[1:]):
        by_source[line.family, line.arguments].append(line)
    passed = failed = 0
    for (family, arguments), lines in by_source.items():
        source = checkpoint(family, arguments)
        right, wrong = check_source(source, lines, can_mount)
        for words in wrong:
            print(f"FAIL {family} {words}", flush=True)
        print(f"{family}: {right} of {len(lines)} equal", flush=True)
        passed += right
        failed += len(lines) - right
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
