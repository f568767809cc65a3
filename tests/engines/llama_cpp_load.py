#!/usr/bin/env python3
"""llama_cpp_load.py SOURCE MOUNT - llama.cpp reads gguf/: it splits texts as transformers does, and says the same."""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import llama_cpp  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

TEXTS = ["The quick brown fox jumps over the lazy dog.", "def main():\n    return 3.14 * 1000000  # \u03c0?\r\n\n",
         "I've TOLD you: it's 20\u00b0C!!  \u6211\u60f3\u5728apple\u5de5\u4f5c \U0001f680\u200d", " \t \n\n  x"]
NEW_TOKENS = 12
ERROR = 1e-3  # of logits of some tens, in F32


def theirs(model, tokens):
    """Greedy tokens, and the logits of the first of them."""
    out = model.generate(torch.tensor([tokens]), max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False,
                         output_logits=True, return_dict_in_generate=True)
    return out.sequences[0, len(tokens):].tolist(), out.logits[0][0].numpy()


def ours(model, tokens):
    model.reset()
    model.eval(tokens)
    logits = numpy.array(model.scores[len(tokens) - 1])
    said = []
    while len(said) < NEW_TOKENS:
        said.append(int(numpy.argmax(model.scores[model.n_tokens - 1])))
        model.eval(said[-1:])
    return said, logits


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    tokenizer = AutoTokenizer.from_pretrained(source)
    reference = AutoModelForCausalLM.from_pretrained(source).eval()
    reference.generation_config.eos_token_id = None
    model = llama_cpp.Llama(str(mount / "gguf/model.gguf"), n_ctx=256, logits_all=True, verbose=False, n_gpu_layers=0,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    for text in TEXTS:
        tokens = tokenizer.encode(text, add_special_tokens=False)
        split = model.tokenize(text.encode(), add_bos=False)
        assert split == tokens, f"{text!r}: {split}, not {tokens}"
        said, logits = ours(model, tokens)
        expected, known = theirs(reference, tokens)
        difference = numpy.abs(logits - known).max()
        assert difference < ERROR, f"{text!r}: logits differ by up to {difference}"
        assert said == expected, f"{text!r}: {said}, not {expected}"
        print(f"{len(tokens)} tokens and {NEW_TOKENS} more: the same, logits to {difference:.1e}")


if __name__ == "__main__":
    main()
