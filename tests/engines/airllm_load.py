#!/usr/bin/env python3
"""airllm_load.py SOURCE MOUNT - AirLLM runs the model layer by layer from airllm/, and says what transformers says of the source."""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402
from airllm import AutoModel  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

PROMPT = torch.tensor([[1, 17, 33, 250, 99]])


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    assert not list((mount / "airllm").glob("*.safetensors")), "weights beside splitted_model/, which it would read instead"
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(source, dtype="auto")(PROMPT).logits
        ours = AutoModel.from_pretrained(str(mount / "airllm"), device="cpu", dtype=expected.dtype)(PROMPT).logits
    assert torch.equal(expected, ours), f"logits differ by up to {(expected - ours).abs().max()}"
    print(f"{tuple(ours.shape)} logits equal")


if __name__ == "__main__":
    main()
