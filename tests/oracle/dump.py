#!/usr/bin/env python3
"""dump.py - what vLLM itself holds, per rank, after load_weights and before post-processing (the L-state).

    dump.py CHECKPOINT OUT.json LAYOUT...        LAYOUT: tp1 tp2 tp4-ep tp2-pp2 tp2-padded ...

One process plays every rank: vLLM builds the model and runs its own loader with a tensor-parallel group whose size and
rank are set by hand; loading does no communication.  Memory that vLLM leaves uninitialised is filled with NaN / the
largest integer first, so that it shows as "uninit".
"""
import argparse, gc, hashlib, json, os, re, sys, time, traceback
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
import torch
import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state as ps
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.utils import initialize_model
from vllm.utils.torch_utils import set_default_torch_dtype

class Stub:
    """GPU-only packages whose import a model file wants but whose kernels are never called here."""
    roots = ("cutlass", "cuda", "flashinfer", "deep_gemm", "flash_mla", "fla")

    def find_spec(self, name, path=None, target=None):
        from importlib.machinery import ModuleSpec
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.roots else None

    def create_module(self, spec):
        from unittest.mock import MagicMock
        import types
        m = types.ModuleType(spec.name)
        m.__path__ = []
        m.__getattr__ = lambda n: MagicMock() if not n.startswith("__") else (_ for _ in ()).throw(AttributeError(n))
        return m

    def exec_module(self, module):
        pass


def pretend_gpu():
    """Let vLLM choose the kernels that it would choose on an NVIDIA GPU.  Nothing is computed with them: a kernel's choice only
    decides paddings that the parameters are created with."""
    sys.meta_path.append(Stub())
    from unittest.mock import MagicMock
    torch.cuda.Stream = torch.cuda.Event = MagicMock()
    from vllm.model_executor.kernels import linear as K
    from vllm.platforms.interface import PlatformEnum
    yes = classmethod(lambda cls, *a, **k: (True, None))
    for name in [n for n in dir(K) if n.startswith("_POSSIBLE")]:
        d = getattr(K, name)
        kernels = d.get(PlatformEnum.CUDA, [])
        first = [k for k in kernels if "Marlin" in k.__name__] if name != "_POSSIBLE_FP8_BLOCK_KERNELS" else \
                [k for k in kernels if "Cutlass" in k.__name__]
        for k in kernels:
            k.is_supported = yes
        if name == "_POSSIBLE_KERNELS":
            for k in first:
                k.can_implement = yes
        d[PlatformEnum.CPU] = first + [k for k in kernels if k not in first]
    from vllm.platforms.cpu import CpuPlatform
    real = CpuPlatform.get_attn_backend_cls.__func__
    from vllm.config.cache import CacheConfig
    import vllm.model_executor.models.config as mcfg                     # mamba_ok: no cache is ever made
    for c in vars(mcfg).values():
        if isinstance(c, type) and c.__name__ in ("HybridAttentionMambaModelConfig", "MambaModelConfig"):
            c.verify_and_update_config = classmethod(lambda cls, v: None)

    def backend(cls, selected_backend=None, attn_selector_config=None, **k):
        if attn_selector_config.use_sparse:
            attn_selector_config = attn_selector_config._replace(use_sparse=False)
        return real(cls, selected_backend, attn_selector_config, **k)
    CpuPlatform.get_attn_backend_cls = classmethod(backend)
    import importlib
    for m in ("fp8", "int_wna16", "mxfp4", "mxfp8", "nvfp4", "int8", "unquantized"):
        mod = importlib.import_module("vllm.model_executor.layers.fused_moe.oracle." + m)
        for fn in ("backend_to_kernel_cls", "_mxfp8_backend_to_kernel_cls"):
            if hasattr(mod, fn):
                old = getattr(mod, fn)
                def new(b, old=old):
                    cs = old(b)
                    for c in cs:
                        c.is_supported_config = staticmethod(lambda *a, **k: (True, None))
                    return cs
                setattr(mod, fn, new)


DT = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64",
      torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
      torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e8m0fnu: "F8_E8M0",
      torch.uint16: "U16", torch.uint32: "U32", torch.uint64: "U64"}


def parse(layout):
    m = re.fullmatch(r"tp(\d+)(?:-pp(\d+))?(-ep)?(-padded)?", layout)
    if not m:
        sys.exit(f"{layout}: not a layout")
    # Of the backends that take experts in whole blocks alone, any.
    return int(m[1]), int(m[2] or 1), bool(m[3]), {"moe_backend": "marlin"} if m[4] else {}


def play(group, size, rank):
    g = getattr(ps, group)
    if g is None:
        return
    g.world_size, g.rank_in_group = size, rank
    if group == "_PP":
        g.rank = rank                           # is_first_rank and is_last_rank look at this one
    g.ranks = list(range(size))


def tensor_bytes(t):
    t = t.detach().cpu().contiguous()
    return t.view(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def uninit(t):
    if t.dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        return int((t == torch.iinfo(t.dtype).max).sum())
    if t.dtype == torch.float8_e8m0fnu:
        return int((t.view(torch.uint8) == 255).sum())
    if t.dtype.is_floating_point:
        return int(torch.isnan(t.float()).sum())
    return 0


def dump_rank(ckpt, tp, pp, ep, rank, pprank, extra):
    args = dict(model=ckpt, load_format="auto", tensor_parallel_size=tp, pipeline_parallel_size=pp, enforce_eager=True,
                enable_expert_parallel=ep, skip_tokenizer_init=True, max_model_len=64, max_num_seqs=1,
                max_num_batched_tokens=64, distributed_executor_backend="mp" if tp * pp > 1 else None)
    args.update(extra)
    cfg = EngineArgs(**args).create_engine_config()
    cfg.compilation_config.static_forward_context.clear()
    with set_current_vllm_config(cfg):
        play("_TP", tp, rank); play("_PP", pp, pprank)
        if ep or True:
            play("_EP", tp, rank)
        mc = cfg.model_config
        loader = get_model_loader(cfg.load_config)
        with set_default_torch_dtype(mc.dtype), torch.device("cpu"):
            model = initialize_model(vllm_config=cfg, model_config=mc)
        loader.load_weights(model, mc)
        full = model.state_dict()
        state = ShardedStateLoader._filter_subtensors(full)
        out = {}
        for k, t in state.items():
            e = {"dtype": DT[t.dtype], "shape": list(t.shape), "sha256": hashlib.sha256(tensor_bytes(t)).hexdigest()}
            if n := uninit(t):
                e["uninit"] = n
            out[k] = e
        dropped = {k: next((j for j in state if state[j].data_ptr() == t.data_ptr() and state[j].numel()), None)
                   for k, t in full.items() if k not in state}
        info = {"model_dtype": DT[mc.dtype], "quantization": mc.quantization, "architecture": type(model).__name__}
    play("_TP", 1, 0); play("_PP", 1, 0); play("_EP", 1, 0)
    del model
    gc.collect()
    return out, dropped, info


def main():
    p = argparse.ArgumentParser()
    p.add_argument("ckpt"); p.add_argument("out"); p.add_argument("layouts", nargs="+")
    p.add_argument("--extra", default="{}")
    a = p.parse_args()
    if not os.environ.get("DUMP_CPU"):          # the committed cases were made so
        pretend_gpu()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    args = dict(model=a.ckpt, skip_tokenizer_init=True, max_model_len=64, enforce_eager=True)
    args.update(json.loads(a.extra))
    cfg0 = EngineArgs(**args).create_engine_config()
    with set_current_vllm_config(cfg0):
        ps.init_distributed_environment(1, 0, "tcp://127.0.0.1:%d" % (20000 + os.getpid() % 20000), 0, "gloo")
        ps.ensure_model_parallel_initialized(1, 1)
    res = {"vllm": vllm.__version__, "layouts": {}}
    for layout in a.layouts:
        tp, pp, ep, more = parse(layout)
        L = res["layouts"].setdefault(layout, {})
        try:
            for pr in range(pp):
                for r in range(tp):
                    t = time.time()
                    out, dropped, info = dump_rank(a.ckpt, tp, pp, ep, r, pr, {**json.loads(a.extra), **more})
                    res.update(info)
                    key = f"rank-{r}" if pp == 1 else f"pp-{pr}-rank-{r}"
                    L[key] = out
                    if r == 0 and pr == 0 and dropped:
                        res.setdefault("aliases", {})[layout] = dropped
                    print(f"{layout} {key}: {len(out)} tensors, {time.time()-t:.1f} s", file=sys.stderr)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            L.clear(); L["error"] = f"{type(e).__name__}: {e}"[:600]
            play("_TP", 1, 0); play("_PP", 1, 0); play("_EP", 1, 0)
            print(f"{layout}: {L['error']}", file=sys.stderr)
            if os.environ.get("TRACE"):
                traceback.print_exc()
    with open(a.out, "w") as f:
        json.dump(res, f, indent=0, sort_keys=False)


main()
