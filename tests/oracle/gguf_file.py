#!/usr/bin/env python3
"""gguf_file.py --write LLAMA_CPP - what llama.cpp's own converter makes of checkpoints, into engines.tsv.

LLAMA_CPP is a directory with its convert_hf_to_gguf.py, conversion/ and gguf-py/ (the source package of PyPI's llama-cpp-python
has them under vendor/llama.cpp; the lines there are of 0.3.36's). It needs torch, transformers, sentencepiece and numpy; being
imported for its digests, the standard library alone.

The converter knows real tokenizers by a digest of what they make of a text. Ours are small, so it is told whose pattern it is.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import tokenizer

HERE = pathlib.Path(__file__).resolve().parent

# (family, arguments of its checkpoint)
CASES = [("llama-3.1-8b", "--tiny --tokenizer llama3"), ("llama-3.2-3b", "--tiny --tokenizer llama3"),
         ("mistral-7b-v0.3", "--tiny --tokenizer llama3"), ("qwen2.5-0.5b", "--tiny --tokenizer qwen2"),
         ("qwen2.5-7b-instruct", "--tiny --tokenizer qwen2"), ("qwen3-0.6b", "--tiny --tokenizer qwen2"),
         ("qwen3-8b", "--tiny --tokenizer qwen2")]

# What the converter says about the model that is in no file of it but its README, or that nobody reads.
UNSAID = ("general.name", "general.basename", "general.finetune", "general.size_label", "general.version",
          "general.quantization_version", "tokenizer.ggml.add_sep_token")

NUMBERS = {0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4", 6: "f4", 7: "b1", 10: "u8", 11: "i8", 12: "f8"}
STRING, ARRAY = 8, 9
ELEMENT = {0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2)}


class Reader:
    """A GGUF file's bytes from a place on."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        assert self.at <= len(self.data), "it ends too early"
        return self.data[self.at - n:self.at]

    def number(self, kind="u8"):
        raw = self.take(int(kind[1]))
        if kind[0] == "f":
            return raw.hex()  # of a float the bits
        return bool(raw[0]) if kind[0] == "b" else int.from_bytes(raw, "little", signed=kind[0] == "i")

    def string(self):
        return self.take(self.number()).decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            inner, n = self.number("u4"), self.number()
            return [self.value(inner) for _ in range(n)]
        return self.number(NUMBERS[kind])


def parse(data):
    """({key: [type, value]}, {name: {dtype, shape, sha256}}) of a GGUF file's bytes."""
    reader = Reader(data)
    assert reader.take(4) == b"GGUF" and reader.number("u4") == 3, "no GGUF file of version 3"
    n_tensors, n_pairs = reader.number(), reader.number()
    pairs, tensors = {}, {}
    for _ in range(n_pairs):
        key, kind = reader.string(), reader.number("u4")
        assert key not in pairs, f"{key} is there twice"
        pairs[key] = [kind, reader.value(kind)]
    for _ in range(n_tensors):
        name, n_dims = reader.string(), reader.number("u4")
        shape = [reader.number() for _ in range(n_dims)][::-1]
        assert name not in tensors, f"{name} is there twice"
        tensors[name] = shape, *ELEMENT[reader.number("u4")], reader.number()
    first = (reader.at + 31) // 32 * 32
    return pairs, {name: contents(data, first, *t) for name, t in tensors.items()}


def contents(data, first, shape, dtype, size, off):
    for n in shape:
        size *= n
    assert off % 32 == 0 and first + off + size <= len(data), f"a tensor at {off}"
    return {"dtype": dtype, "shape": shape, "sha256": hashlib.sha256(data[first + off:first + off + size]).hexdigest()}


def canonical(pairs):
    """Without what is unsaid, and with what llama.cpp takes for granted where it is not there."""
    arch = pairs["general.architecture"][1]
    known = {key: value for key, value in pairs.items() if key not in UNSAID}
    head = pairs[f"{arch}.embedding_length"][1] // pairs[f"{arch}.attention.head_count"][1]
    for key, value in (("attention.key_length", head), ("attention.value_length", head),
                       ("vocab_size", len(pairs["tokenizer.ggml.tokens"][1]))):
        known.setdefault(f"{arch}.{key}", [4, value])
    known.setdefault(f"{arch}.rope.dimension_count", known[f"{arch}.attention.key_length"])
    known.setdefault(f"{arch}.rope.freq_base", [6, "00401c46"])  # 10000
    return known


def told(data):
    pairs, tensors = parse(data)
    return {**{f"key {key}": value for key, value in canonical(pairs).items()}, **tensors}


def digest(data):
    return hashlib.sha256(json.dumps(told(data), sort_keys=True).encode()).hexdigest()


# ---------------------------------------------------------------- running the converter
DRIVER = """
import pathlib, runpy, sys
llama_cpp, pattern, *arguments = sys.argv[1:]
sys.path[:0] = [llama_cpp, llama_cpp + "/gguf-py"]
from conversion import base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pattern
sys.argv = [llama_cpp + "/convert_hf_to_gguf.py", *arguments]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def converted(llama_cpp, source, kind):
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "model.gguf"
        subprocess.run([sys.executable, "-c", DRIVER, llama_cpp, tokenizer.KINDS[kind][1], source, "--outfile", out,
                        "--outtype", "auto"], check=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        return out.read_bytes()


def main():
    from engines import TABLE, Line, load_table
    from check import checkpoint
    if sys.argv[1] != "--write":
        pairs, tensors = parse(pathlib.Path(sys.argv[1]).read_bytes())
        for key, value in canonical(pairs).items():
            print(key, value[0], str(value[1])[:200])
        for name, t in tensors.items():
            print(name, t["dtype"], t["shape"], t["sha256"])
        return
    lines = [line for line in load_table([]) if line.path != "gguf"]
    for family, arguments in CASES:
        data = converted(sys.argv[2], checkpoint(family, arguments), arguments.split()[-1])
        lines.append(Line(family, arguments, "gguf", "gguf", "model.gguf", digest(data)))
    TABLE.write_text("".join(sorted("\t".join(line) + "\n" for line in lines)))


if __name__ == "__main__":
    main()
