#!/usr/bin/env python3
"""embed.py DIR LOAD_FORMAT TP - run vLLM on an embedding model; prints one JSON line.

{"state": what each worker held after loading, "embedding": of SENTENCE}.
"""
import sys

import vllm_state  # noqa: I001 - before vLLM

SENTENCE = "The quick brown fox jumps over the lazy dog."


def main():
    from vllm import LLM
    path, load_format, tp = sys.argv[1], sys.argv[2], int(sys.argv[3])
    llm = LLM(model=path, load_format=load_format, tensor_parallel_size=tp, enforce_eager=True, runner="pooling",
              max_num_seqs=1)
    state = llm.apply_model(vllm_state.loaded_state)
    vllm_state.leave(llm, {"state": state, "embedding": llm.embed([SENTENCE])[0].outputs.embedding})


if __name__ == "__main__":
    main()
