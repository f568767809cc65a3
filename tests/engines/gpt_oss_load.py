#!/usr/bin/env python3
"""gpt_oss_load.py SOURCE MOUNT - OpenAI's gpt-oss builds its model from gpt-oss/, which then holds what transformers holds of the
source."""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402
from gpt_oss.torch.model import Transformer  # noqa: E402
from transformers import AutoModelForCausalLM, Mxfp4Config  # noqa: E402

# Their names below a layer, and transformers' there; of experts with the input first.
WHOLE = {"attn.norm.scale": "input_layernorm.weight", "attn.sinks": "self_attn.sinks",
         "attn.out.weight": "self_attn.o_proj.weight", "attn.out.bias": "self_attn.o_proj.bias",
         "mlp.norm.scale": "post_attention_layernorm.weight", "mlp.gate.weight": "mlp.router.weight",
         "mlp.gate.bias": "mlp.router.bias", "mlp.mlp1_bias": "mlp.experts.gate_up_proj_bias",
         "mlp.mlp2_bias": "mlp.experts.down_proj_bias"}
TURNED = {"mlp.mlp1_weight": "mlp.experts.gate_up_proj", "mlp.mlp2_weight": "mlp.experts.down_proj"}
OUTSIDE = {"embedding.weight": "model.embed_tokens.weight", "norm.scale": "model.norm.weight",
           "unembedding.weight": "lm_head.weight"}


def expected(state, layers):
    tensors = {ours: state[theirs] for ours, theirs in OUTSIDE.items()}
    for i in range(layers):
        ours, theirs = f"block.{i}.", f"model.layers.{i}."
        tensors |= {ours + a: state[theirs + b] for a, b in WHOLE.items()}
        tensors |= {ours + a: state[theirs + b].transpose(1, 2) for a, b in TURNED.items()}
        for kind in ("weight", "bias"):
            tensors[f"{ours}attn.qkv.{kind}"] = torch.cat([state[f"{theirs}self_attn.{p}_proj.{kind}"] for p in "qkv"])
    return tensors


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    ours = Transformer.from_checkpoint(str(mount / "gpt-oss"), device="cpu")
    theirs = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16, pad_token_id=0,
                                                  quantization_config=Mxfp4Config(dequantize=True))
    known = expected(theirs.state_dict(), theirs.config.num_hidden_layers)
    held = dict(ours.named_parameters())
    assert held.keys() == known.keys(), f"{held.keys() ^ known.keys()}"
    for name, tensor in known.items():
        assert torch.equal(held[name].to(tensor.dtype), tensor), f"{name} differs"
    print(f"{len(held)} tensors equal")


if __name__ == "__main__":
    main()
