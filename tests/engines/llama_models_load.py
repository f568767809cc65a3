#!/usr/bin/env python3
"""llama_models_load.py SOURCE MOUNT - Meta's llama-models loads meta/ strictly, one rank's file and two resharded, and says what
transformers says of the source."""
import json
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0",
                  WORLD_SIZE="1", LOCAL_RANK="0")

import torch  # noqa: E402
from fairscale.nn.model_parallel.initialize import initialize_model_parallel  # noqa: E402
from llama_models.checkpoint import maybe_reshard_state_dict  # noqa: E402
from llama_models.llama3.args import ModelArgs  # noqa: E402
from llama_models.llama3.model import Transformer  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

PROMPT = torch.tensor([[1, 17, 33, 250, 99]])
ERROR = 1e-3  # of logits of some tens, in F32


def load(directory):
    """As Llama3.build() does, which wants the real tokenizer."""
    args = ModelArgs(max_seq_len=64, max_batch_size=1, **json.loads((directory / "params.json").read_text()))
    state = maybe_reshard_state_dict(sorted(directory.glob("*.pth")), n_kv_heads=args.n_kv_heads)
    torch.set_default_dtype(torch.float32)
    model = Transformer(args)
    model.load_state_dict(state, strict=True)
    return model


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(source)(PROMPT).logits
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    initialize_model_parallel(1)
    for layout in ("mp1", "mp2"):
        with torch.inference_mode():
            ours = load(mount / "meta" / layout)(PROMPT, 0)
        difference = (expected - ours).abs().max()
        assert difference < ERROR, f"{layout}: logits differ by up to {difference}"
        print(f"{layout}: {tuple(ours.shape)} logits the same to {difference:.1e}")


if __name__ == "__main__":
    main()
