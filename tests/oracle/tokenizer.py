#!/usr/bin/env python3
"""tokenizer.py KIND DIR - give a generated checkpoint a small byte-pair tokenizer: tokenizer.json and what stands beside it.

Its vocabulary is trained on this repository's licence, in the slow and obvious way; always the same one. The kinds differ in
what files of Llama 3 and of Qwen differ in: the pattern, how merges are written, which file says what the special tokens are.

Python 3, standard library only.
"""
import collections
import json
import pathlib
import re
import sys

TEXT = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"
MERGES = 180
LETTERS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def alphabet():
    """The character that stands for each byte: itself where it can be seen, else one from 256 on (GPT-2's)."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def train(text):
    """Pairs to be merged, the most frequent first, of equals the smallest."""
    letters = alphabet()
    words = collections.Counter(tuple(letters[byte] for byte in word.encode()) for word in re.findall(r" ?\w+|\s+|\W", text))
    merges = []
    for _ in range(MERGES):
        pairs = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += n
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = collections.Counter({merged(word, best): n for word, n in words.items()})
    return merges


def merged(word, pair):
    out = []
    for letter in word:
        if out and (out[-1], letter) == pair:
            out[-1] += letter
        else:
            out.append(letter)
    return tuple(out)


def added(first, *tokens):
    return [{"id": first + i, "content": content, "special": special, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False} for i, (content, special) in enumerate(tokens)]


def document(pattern, merges, tokens, post_processor, write=list, **model):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": LETTERS % pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": post_processor, "decoder": BYTES,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False,
                      "vocab": {token: i for i, token in enumerate([*alphabet().values(), *map("".join, merges)])},
                      "merges": [write(pair) for pair in merges], **model}}


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}


def llama3(merges):
    bos = {"SpecialToken": {"id": "<|begin_of_text|>", "type_id": 0}}
    template = {"type": "TemplateProcessing", "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, bos, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|begin_of_text|>": {"id": "<|begin_of_text|>", "ids": [256 + MERGES],
                                                         "tokens": ["<|begin_of_text|>"]}}}
    tokens = added(256 + MERGES, ("<|begin_of_text|>", True), ("<|end_of_text|>", True), ("<|eot_id|>", True),
                   ("<unused0>", False), ("\u2581plain", False))
    return {"tokenizer.json": document(r"\p{N}{1,3}", merges, tokens, {"type": "Sequence", "processors": [BYTES, template]},
                                       write=" ".join, ignore_merges=True),
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>",
                                      "eos_token": "<|eot_id|>", "chat_template": TEMPLATE}}


def qwen2(merges):
    tokens = added(256 + MERGES, ("<|endoftext|>", True), ("<|im_end|>", True), ("<|fim_prefix|>", False),
                   ("<tool_call>", False))
    return {"tokenizer.json": document(r"\p{N}", merges, tokens, BYTES),
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False,
                                      "bos_token": None, "eos_token": {"__type": "AddedToken", "content": "<|im_end|>"},
                                      "pad_token": "<|endoftext|>", "unk_token": None},
            "chat_template.jinja": TEMPLATE}


# To add a kind: its function above and a row here, with the name that llama.cpp has for its pattern.
KINDS = {"llama3": (llama3, "llama-bpe"), "qwen2": (qwen2, "qwen2")}


def main():
    kind, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    for name, content in KINDS[kind][0](train(TEXT.read_text())).items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        (directory / name).write_text(text)


if __name__ == "__main__":
    main()
