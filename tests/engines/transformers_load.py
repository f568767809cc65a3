#!/usr/bin/env python3
"""transformers_load.py SOURCE MOUNT - transformers loads hf/ and airllm/: no key missing, none left over, same logits."""
import os
import pathlib
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import torch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

PROMPT = [[1, 17, 33, 250, 99]]
TROUBLES = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")


def logits(directory):
    model, report = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True, dtype="auto")
    troubles = {what: report[what] for what in TROUBLES if report.get(what)}
    assert not troubles, f"{directory}: {troubles}"
    with torch.no_grad():
        return model(torch.tensor(PROMPT)).logits


def main():
    source, mount = map(pathlib.Path, sys.argv[1:3])
    expected = logits(source)
    for path in ("hf/tp1/rank-0", "hf/layers", "airllm"):
        ours = logits(mount / path)
        assert torch.equal(expected, ours), f"{path}: logits differ by up to {(expected - ours).abs().max()}"
        print(f"{path}: {tuple(ours.shape)} logits equal")


if __name__ == "__main__":
    main()
