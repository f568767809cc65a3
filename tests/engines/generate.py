#!/usr/bin/env python3
"""generate.py DIR LOAD_FORMAT TP [PP] - run vLLM on a directory; prints one JSON line.

{"state": what each worker held after loading, "tokens": greedy ones, "logprobs": of the five best at each step}. The
state alone where vLLM 0.32's CPU build loads a model and then fails, with any load format: with pipeline stages, which
it cannot schedule, and with 4-bit weights on a CPU without AVX-512, which it has no product for.
"""
import sys

import vllm_state  # noqa: I001 - before vLLM

PROMPT = [1, 17, 33, 250, 99]
NEEDS = {"gptq": "cpu_gemm_wna16", "awq": "cpu_gemm_wna16"}  # quant_method: the operator of vLLM that multiplies by it


def can_generate(llm, pp):
    import torch
    import vllm._custom_ops  # noqa: F401 - registers the operators
    quantized = getattr(llm.llm_engine.model_config.hf_config, "quantization_config", None) or {}
    needed = NEEDS.get(quantized.get("quant_method"))
    return pp == 1 and (not needed or hasattr(torch.ops._C, needed))


def main():
    from vllm import LLM, SamplingParams
    path, load_format, tp = sys.argv[1], sys.argv[2], int(sys.argv[3])
    pp = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    llm = LLM(model=path, load_format=load_format, tensor_parallel_size=tp, pipeline_parallel_size=pp,
              enforce_eager=True, skip_tokenizer_init=True, max_model_len=64, max_num_seqs=1)
    result = {"state": llm.apply_model(vllm_state.loaded_state)}
    if can_generate(llm, pp):
        params = SamplingParams(temperature=0, max_tokens=12, detokenize=False, logprobs=5, ignore_eos=True)
        out = llm.generate([{"prompt_token_ids": PROMPT}], params)[0].outputs[0]
        result["tokens"] = list(out.token_ids)
        result["logprobs"] = [[[token, lp.logprob] for token, lp in step.items()] for step in out.logprobs]
    vllm_state.leave(llm, result)


if __name__ == "__main__":
    main()
