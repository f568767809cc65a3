#!/usr/bin/env python3
"""engine.py HOW DIRECTORY [TP [LOAD_FORMAT]] - how long a library takes to load the weights of a directory: seconds.

HOW is safetensors (load_file), fastsafetensors, runai-model-streamer, or vllm, whose own line "Loading weights took" it is, of the
slowest worker. Exit 77 with the reason on stdout where it is not installed.
"""
import contextlib
import glob
import os
import re
import sys
import tempfile
import time


def files(directory):
    names = glob.glob(f"{directory}/*.safetensors")
    return sorted(names, key=lambda name: [int(n) if n.isdigit() else n for n in re.split(r"(\d+)", name)])


def safetensors(directory):
    from safetensors.torch import load_file
    start = time.monotonic()
    for name in files(directory):
        for tensor in load_file(name).values():
            tensor.clone()  # it is mapped, and nothing has been read yet
    return time.monotonic() - start


def fastsafetensors(directory):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    start = time.monotonic()
    for name in files(directory):
        loader = SafeTensorsFileLoader(SingleGroup(), device="cpu", nogds=True)
        loader.add_filenames({0: [name]})
        buffers = loader.copy_files_to_device()
        for key in loader.get_keys():
            buffers.get_tensor(key)
        buffers.close()
        loader.close()
    return time.monotonic() - start


def runai(directory):
    from runai_model_streamer import SafetensorsStreamer
    start = time.monotonic()
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(files(directory))
        for _ in streamer.get_tensors():
            pass
    return time.monotonic() - start


@contextlib.contextmanager
def captured(log):
    """Of this process and of those that it starts."""
    saved = os.dup(1), os.dup(2)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        for fd, copy in enumerate(saved, 1):
            os.dup2(copy, fd)


def vllm(directory, tp="1", load_format="auto"):
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1",
                      VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_WORKER_MULTIPROCESSING_METHOD="spawn")
    import vllm as engine
    with tempfile.TemporaryFile() as log:
        with captured(log):
            engine.LLM(model=directory, load_format=load_format, tensor_parallel_size=int(tp), enforce_eager=True,
                       skip_tokenizer_init=True, max_model_len=64, max_num_seqs=1)
        log.seek(0)
        took = re.findall(rb"[Ll]oading weights took ([0-9.]+) seconds", log.read())
    if not took:
        sys.exit("vLLM does not say how long it took")
    return max(map(float, took))


HOWS = {"safetensors": safetensors, "fastsafetensors": fastsafetensors, "runai-model-streamer": runai, "vllm": vllm}


def main():
    try:
        seconds = HOWS[sys.argv[1]](*sys.argv[2:])
    except ImportError as error:
        print(f"not installed: {error.name or error}")
        sys.exit(77)
    print(f"{seconds:.3f}", flush=True)
    os._exit(0)  # the engine's teardown takes longer than the load


if __name__ == "__main__":  # and not one of vLLM's workers
    main()
