#!/usr/bin/env python3
"""make_source.py KIND DIR - a small model with a tokenizer, as transformers saves it.

Its weights are random, in F32 and far apart, so that no other code's rounding changes which token is the likeliest. KIND
llama3 has the real vocabulary of Llama 3, which the package llama-models brings; the others' is trained on this file.
"""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import (LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config,  # noqa: E402
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

SIZES = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, max_position_embeddings=16384, dtype="float32")
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=8192)
QWEN_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
                r"\s+(?!\S)|\s+")


def llama3_tokenizer():
    import llama_models.llama3 as package
    from transformers.convert_slow_tokenizer import TikTokenConverter
    tokenizer = TikTokenConverter(str(pathlib.Path(package.__file__).parent / "tokenizer.model")).converted()
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")


def trained_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<|endoftext|>", "<|im_end|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([__file__], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")


# To add a kind: its tokenizer, its model, the configuration beside SIZES.
KINDS = {
    "llama3": (llama3_tokenizer, LlamaForCausalLM, LlamaConfig,
               dict(vocab_size=128256, rope_parameters=LLAMA3_ROPE, bos_token_id=128000, eos_token_id=128001)),
    "qwen2": (trained_tokenizer, Qwen2ForCausalLM, Qwen2Config, dict(vocab_size=640, eos_token_id=1)),
    "qwen3": (trained_tokenizer, Qwen3ForCausalLM, Qwen3Config,
              dict(vocab_size=640, eos_token_id=1, tie_word_embeddings=True)),
}


def main():
    kind, directory = sys.argv[1:3]
    tokenizer, model_class, config_class, more = KINDS[kind]
    torch.manual_seed(1)
    model = model_class(config_class(**SIZES, **more))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1 if "norm" in name else 0, 0.3)
    model.save_pretrained(directory)
    tokenizer().save_pretrained(directory)


if __name__ == "__main__":
    main()
