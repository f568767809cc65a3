"""vllm_state.py - vLLM on this machine's CPU, with a witness: what each rank held right after its weights were loaded.

Import it before anything of vLLM. It wraps load_weights of the loaders, in every process: a spawned worker runs the
main module's imports again, and this one's with them. Later is too late to look: the CPU kernels repack most weights.
"""
import hashlib
import json
import os

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1",
                  VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_ALLOW_INSECURE_SERIALIZATION="1",
                  VLLM_WORKER_MULTIPROCESSING_METHOD="spawn")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch  # noqa: E402
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader  # noqa: E402
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader  # noqa: E402


def digest(model):
    """A digest of everything that a model holds: names, dtypes, shapes, bytes."""
    state = hashlib.sha256()
    size = 0
    for name, tensor in sorted(model.state_dict().items()):
        tensor = tensor.detach().cpu().contiguous()
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        state.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        size += tensor.numel() * tensor.element_size()
    return {"sha256": state.hexdigest(), "bytes": size}


def witness(loader):
    load = loader.load_weights

    def load_weights(self, model, model_config):
        load(self, model, model_config)
        model.loaded_state = digest(model)

    loader.load_weights = load_weights


for each in DefaultModelLoader, ShardedStateLoader:
    witness(each)


def leave(llm, result):
    """Print the result and end: the interpreter's own way out aborts now and then, with a C++ thread of the engine still there."""
    print(json.dumps(result), flush=True)
    llm.llm_engine.engine_core.shutdown()
    os._exit(0)


def loaded_state(model):
    """For llm.apply_model(): runs in each worker."""
    return model.loaded_state
