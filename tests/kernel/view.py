#!/usr/bin/env python3
"""view.py [CASE…] - kernel/ against what twin.py makes of the same rank of vllm/, tensor by tensor.

For every case: make its checkpoint (tests/zoo/gen.py, kept in build/zoo), export the rank as vLLM loads it and as its kernels read
it, process each module of the first with numpy, and compare names, dtypes, shapes and bytes of all tensors of the second. Which
recipe a module gets is said here a second time, by what the module has. Layouts that have no exact answer must be refused.

Needs numpy; RANKFS is the binary.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import twin
from states import CACHE_SCALES, RANKFS, source

NVIDIA_MARLIN = re.compile(r"-marlin|-sm80|-sm89")

# Shares of experts that are 1 1/2 blocks: padded for all kernels but Triton's, which take finer blocks.
CUT = "qwen3-235b-a22b-fp8 --head-dim 128 --moe-inter 384"

# Family (and arguments of gen.py), layout of kernel/, rank; a layout that must be refused has no rank, and a part of the reason.
CASES = [
    ("llama-3.1-8b", "tp2", 1), ("llama-3.1-8b", "tp2-fp8", 1), ("llama-3.1-8b", "tp2-fp8c", 0), ("llama-3.1-8b", "tp2-fp8-kn", 0),
    ("llama-3.1-8b", "tp2-fp8b-triton", 1),
    ("llama-3.1-8b-fp8", "tp2", 1), ("llama-3.1-8b-fp8", "tp2-kn", 0), ("llama-3.1-8b-fp8", "tp2-gfx942", 0),
    ("llama-3.1-8b-fp8", "tp2-marlin", 1), ("llama-3.1-8b-fp8", "tp1-marlin-sm80", 0),
    ("llama-3.1-8b-fp8-modelopt", "tp2-sm80", 1),
    ("llama-3.1-8b-fp8-dynamic", "tp2", 1), ("llama-3.1-8b-fp8-dynamic", "tp2-marlin-sm80", 1),
    ("llama-3.1-405b-fp8", "tp2", 1), ("llama-3.1-405b-fp8", "tp2-sm80", "twice"),
    ("llama-3.1-8b-w8a8", "tp2", 1), ("llama-3.1-8b-w8a8-static", "tp2-sm80", 0), ("llama-3.1-8b-w8a8", "tp1-sm100", "no INT8 kernels"),
    ("llama-3.1-8b-w4a16", "tp2", "Machete"), ("llama-3.1-8b-w4a16", "tp2-marlin", 1), ("llama-3.1-8b-w4a16", "tp1-sm89", 0),
    ("qwen2.5-7b-instruct-gptq-int4", "tp2-marlin", 1), ("qwen2.5-7b-instruct-awq", "tp1-sm80", 0),
    ("llama-3.1-8b-nvfp4", "tp2-marlin", 1), ("llama-3.1-8b-nvfp4", "tp2-sm100", 1),
    ("llama-3.1-8b-nvfp4-modelopt", "tp1-sm89", 0),
    ("deepseek-v3", "tp2", "DeepGEMM"), ("deepseek-v3", "tp2-triton", 1), ("deepseek-v3", "tp2-sm89", "Marlin"), ("deepseek-v2-lite", "tp2-sm80", 1),
    ("qwen3-235b-a22b-fp8", "tp1-triton", 0), ("qwen3-235b-a22b-fp8", "tp1-sm80", 0), ("qwen3-235b-a22b-fp8", "tp1-cutlass", "not known"),
    (CUT, "tp2-marlin", 1), (CUT, "tp2-triton", 1), (CUT, "tp2-sm80", "no kernel there takes the finer blocks"),
    ("qwen3-30b-a3b", "tp2-sm100", 1), ("qwen3-30b-a3b", "tp2-flashinfer", 0), ("qwen3-30b-a3b", "tp2-fp8", 0), ("qwen3-30b-a3b --experts 16", "tp2-fp8c", 1),
    ("mixtral-8x7b", "tp2-sm100", "by the router"), ("mixtral-8x7b", "tp2-trtllm-sm100", 1),
    ("gpt-oss-20b", "tp2", "Triton"), ("gpt-oss-20b", "tp2-marlin", 1), ("gpt-oss-20b", "tp2-sm100", 0),
    ("glm-4.5-fp8", "tp2-marlin", 1),
    ("minimax-m3-mxfp8", "tp2-sm80", 1), ("kimi-k3", "tp2-marlin", 0),
    ("qwen3-235b-a22b-nvfp4-modelopt", "tp2", "Humming"), ("qwen3-235b-a22b-nvfp4-modelopt", "tp2-sm89", 1),
    ("qwen3-235b-a22b-nvfp4-modelopt", "tp2-sm100", 0), ("qwen3-235b-a22b-nvfp4-modelopt", "tp2-cutlass-sm100", 0),
    ("deepseek-v4-flash", "tp2", "has not been compared"), ("gemma-3-4b-it", "tp1-fp8", "an encoder of images"),
]


def run(*args, ok=True):
    done = subprocess.run([RANKFS, *args], capture_output=True, text=True)
    if ok and done.returncode:
        raise SystemExit(f"{' '.join(args)}: {done.stderr}")
    return done


def load(folder):
    arrays, dtypes = {}, {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        t, ty, _ = twin.read(path)
        arrays.update(t)
        dtypes.update(ty)
    return arrays, dtypes


class Rank:
    """A rank as vLLM loads it, and what the tests have to know to process it."""

    def __init__(self, family, layout, rank):
        self.config = json.loads((pathlib.Path(source(family)) / "config.json").read_text())
        self.text = self.config.get("text_config", self.config)
        self.layout, self.rank = layout, rank
        self.tp = int(re.match(r"tp(\d+)", layout).group(1))
        self.gpu = (re.findall(r"sm\d+|gfx\d+", layout) or ["sm90"])[0]
        gpu = "sm80" if "marlin" in layout else self.gpu
        with tempfile.TemporaryDirectory() as out:
            padded = "-padded" if family == CUT and "-triton" not in layout else ""
            run("export", "-o", f"gpu={gpu}", source(family), f"vllm/tp{self.tp}{padded}", out)
            self.arrays, self.dtypes = {}, {}
            for path in sorted(pathlib.Path(out).glob(f"model-rank-{rank}-*.safetensors")):
                t, ty, _ = twin.read(path)
                self.arrays.update(t)
                self.dtypes.update(ty)
        self.whole = self if self.tp == 1 else Rank(family, "tp1", 0) if "fp8" in layout else None
        self.dtype = "bfloat16" if self.text.get("torch_dtype", self.text.get("dtype")) == "bfloat16" else "float16"
        self.marlin = bool(NVIDIA_MARLIN.search(layout))
        apart = pathlib.Path(source(family)) / "hf_quant_config.json"
        self.method = "modelopt" if apart.exists() else self.config.get("quantization_config", {}).get("quant_method")

    def widths(self, prefix, n):
        if prefix.endswith("qkv_proj."):
            kv = max(self.text["num_key_value_heads"] // self.tp, 1)
            heads = self.text["num_attention_heads"] // self.tp
            one = n // (heads + 2 * kv)
            return [heads * one, kv * one, kv * one]
        if prefix.endswith(("gate_up_proj.", "gate_up.")):
            return [n // 2, n // 2]
        return [n]

    def block(self):
        return self.config.get("quantization_config", {}).get("weight_block_size", [128, 128])

    def group(self):
        q = self.config.get("quantization_config", {})
        groups = list(q.get("config_groups", {}).values())
        return q.get("group_size") or (groups[0]["weights"].get("group_size") if groups else None) or -1


def bits_view(x):
    return np.ascontiguousarray(x)


# Each handler gets a module's tensors by their own names and gives (what replaces them, names of tensors that are views).
def fp8_tensor(r, prefix, m):
    n = m["weight"].shape[0]
    i = {"weight": m["weight"], "weight_scale": m["weight_scale"]}
    if "input_scale" in m:
        i["input_scale"] = m["input_scale"]
    o = twin.tensor_strategy(i, {"logical_widths": r.widths(prefix, n)}, fn=r.gpu == "gfx942")
    o["weight"] = o["weight"].T
    return o, {"weight"}


def fp8_channel(r, prefix, m):
    return {k: v for k, v in m.items() if k != "bias"}, {"weight"}


def zero_bias(r, n):
    return np.zeros(n, np.uint16 if r.dtype == "bfloat16" else np.float16)


def int8(r, prefix, m):
    static = "input_scale" in m
    rows = m["weight"].shape[0]
    widths = [rows] if m["weight_scale"].ndim == 2 else r.widths(prefix, rows)
    o = twin.int8(m, {"logical_widths": widths, "static": static, "symmetric": "input_zero_point" not in m})
    if "input_zero_point" in m:  # a GPU multiplies with the inverse of 255
        f = np.float32
        z, a = m["input_zero_point"].astype(np.int32), m["input_scale"]
        hi, lo = (a * (127 - z).astype(f)).max(), (a * (-128 - z).astype(f)).min()
        o["input_scale"] = (hi - lo) * (f(1) / f(255))
        o["input_zero_point"] = np.trunc(f(-128) - lo / o["input_scale"]).astype(np.int32)
        o["azp_adj"] = m["weight"].astype(np.int32).sum(1, dtype=np.int32)[None] * o["input_zero_point"]
    o["weight"] = m["weight"]
    return o, {"weight"}


def marlin_fp8(r, prefix, m):
    scale = "weight_scale_inv" if "weight_scale_inv" in m else "weight_scale"
    n = m["weight"].shape[0]
    p = {"dtype": r.dtype, "block": r.block() if scale.endswith("inv") else None, "logical_widths": r.widths(prefix, n)}
    weight, scales = m["weight"], m[scale]
    # Schemes that make one scale of several before they ask which kernel it is for.
    if scale == "weight_scale" and scales.ndim < 2 and (r.method == "modelopt" or r.method == "compressed-tensors" and r.gpu != "sm80"):
        made = twin.tensor_strategy({"weight": weight, "weight_scale": scales}, {"logical_widths": r.widths(prefix, n)})
        weight, scales, p["logical_widths"] = made["weight"].T, np.atleast_1d(made["weight_scale"]), [n]
    o = twin.fp8_marlin({"weight": weight, "weight_scale": scales, "bias": zero_bias(r, n)}, p)
    made = {"weight": o["weight"], scale: o["weight_scale"]}
    return made | {k: v for k, v in m.items() if k == "input_scale_ub"}, set()


def marlin_integers(r, prefix, m):
    g = r.group()
    if "weight_packed" in m:
        o = twin.ct_wna16(m, {"bits": 4, "group": g, "zp": "weight_zero_point" in m})
        return {**o, "weight_shape": m["weight_shape"]}, set()
    if "qzeros" in m and m["qweight"].shape[0] == m["scales"].shape[0] * g:
        return twin.awq(m, {"bits": 4, "group": g}), set()
    o = twin.gptq({"bias": zero_bias(r, m["qweight"].shape[1]), **m}, {"bits": 4, "group": g})
    return {k: v for k, v in o.items() if k != "bias" or "bias" in m}, set()


def nvfp4(r, prefix, m):
    packed = "weight_packed" if "weight_packed" in m else "weight"
    if packed == "weight_packed":
        o = twin.global_ct(m, {})
    else:
        o = twin.global_mo(m, {})
    w, s = m[packed], m["weight_scale"]
    if r.gpu == "sm100" and not r.marlin:
        o["weight"] = twin.nvfp4_pad({"weight": w}, {"alignment": 32})["weight"]
        o["weight_scale"] = twin.swizzle(s)
        return o, set()
    i = {"weight": w, "weight_scale": s, "weight_global_scale": o["weight_global_scale"], "bias": zero_bias(r, w.shape[0])}
    t = twin.nvfp4_marlin(i, {"dtype": r.dtype, "n": w.shape[0], "k": 2 * w.shape[1]})
    del t["bias"]
    return {**o, **t}, set()


def mxfp8(r, prefix, m):
    return twin.mxfp8_marlin(m, {"dtype": r.dtype}), set()


def online(r, prefix, m):
    if "fp8b" in r.layout:
        return twin.online_block(m, {"block": [128, 128]}), set()
    whole = r.whole.arrays.get(prefix + "weight")
    if "fp8c" not in r.layout:
        s = twin.amax(whole).reshape(1) / np.float32(448)
        q = twin.static_quant(twin.wide(m["weight"]), s[0])
        rows, cols = -q.shape[0] % 16, -q.shape[1] % 16  # CUTLASS pads them
        return {"weight": np.pad(q, ((0, rows), (0, cols))), "weight_scale": s}, {"weight"}
    source = whole if whole.shape[0] == m["weight"].shape[0] and whole.shape != m["weight"].shape else m["weight"]
    _, s = twin.row_quant(source)
    q = twin.e4m3(np.clip(twin.wide(m["weight"]) / s, np.float32(-448), np.float32(448)))
    return {"weight": q, "weight_scale": s}, {"weight"}


def latent(r, prefix, m):
    t = r.text
    nope, v, rank = t["qk_nope_head_dim"], t["v_head_dim"], t["kv_lora_rank"]
    heads = m["weight"].shape[0] // (nope + v)
    o = twin.mla(m, {"heads": heads, "nope": nope, "v": v, "rank": rank, "dtype": r.dtype})
    return {"W_UK_T": bits_view(o["W_UK_T"]), "W_UV": bits_view(o["W_UV"].transpose(0, 2, 1))}, {"W_UV"}


def stacked_online(r, prefix, m):
    o = {}
    for n in ("w13", "w2"):
        whole, w = r.whole.arrays[prefix + n + "_weight"], m[n + "_weight"]
        if "fp8c" in r.layout:
            full = whole if n == "w2" else w
            scale = np.stack([twin.row_quant(x)[1] for x in full])
            o[n + "_weight"] = np.stack([twin.e4m3(np.clip(twin.wide(x) / s, np.float32(-448), np.float32(448))) for x, s in zip(w, scale)])
        else:
            scale = np.array([twin.amax(x) for x in whole], np.float32) / np.float32(448)
            o[n + "_weight"] = np.stack([twin.static_quant(twin.wide(x), s) for x, s in zip(w, scale)])
        o[n + "_weight_scale"] = scale
    return o, set()


def held(o, names):
    return {names.get(k, k): v for k, v in o.items()}


def experts(r, prefix, m):
    blocks = "w13_weight_scale_inv" in m
    scale = "weight_scale_inv" if blocks else "weight_scale"
    i = {n: m[f"{n}_weight"] for n in ("w13", "w2")}
    names = {"w13": "w13_weight", "w2": "w2_weight", "w13_scale": f"w13_{scale}", "w2_scale": f"w2_{scale}", "w13_scale_2": "w13_weight_scale_2",
             "w2_scale_2": "w2_weight_scale_2", "a13_scale": "w13_input_scale", "a2_scale": "w2_input_scale"}
    p = {"i": i["w13"].shape[1] // 2, "h": i["w2"].shape[1], "experts": len(i["w13"]), "dtype": r.dtype, "block": r.block() if blocks else None}
    for n in ("w13", "w2"):
        if f"{n}_{scale}" in m:
            i[n + "_scale"] = m[f"{n}_{scale}"]
        if f"{n}_bias" in m:
            i[n + "_bias"] = m[f"{n}_bias"]
    if "w13_weight_scale_2" in m:
        i["w13_scale_2"], i["w2_scale_2"] = m["w13_weight_scale_2"][:, 0], m["w2_weight_scale_2"]
        i["a13_scale"], i["a2_scale"] = m["w13_input_scale"], m["w2_input_scale"]
        if r.gpu != "sm100" or r.marlin:
            return held(twin.moe_nvfp4_marlin(i, p), names), set()
        o = twin.nvfp4_moe(i, {**p, "backend": "VLLM_CUTLASS"}) if "cutlass" in r.layout else twin.trtllm_nvfp4(i, p)
        o["w13_scale_2"], o["w2_scale_2"] = i["w13_scale_2"] * o["a13_scale"], i["w2_scale_2"] * o["a2_scale"]
        if "cutlass" not in r.layout:
            o["g1_scale_c"] = o["w13_scale_2"] * (np.float32(1) / o["a2_scale"])
        return held(o, names), set()
    if r.dtypes[prefix + "w13_weight"] in ("BF16", "F16"):
        if "-fp8" in r.layout:
            return stacked_online(r, prefix, m)
        if "flashinfer" in r.layout:
            return {"w13_weight": twin.w31(i["w13"]), "w2_weight": i["w2"]}, set()
        o = {k: v.reshape(i[k].shape) for k, v in twin.trtllm_bf16(i, p).items()} if r.gpu == "sm100" else {}  # in place
        return held(o, names) if o else m, set()
    if r.dtypes[prefix + "w13_weight"] == "U8":
        o = twin.trtllm_gpt_oss(i, p) if r.gpu == "sm100" else twin.moe_mxfp4_marlin({"w13_bias": np.zeros((1, 32), np.uint16), "w2_bias": np.zeros((1, 32), np.uint16), **i}, p)
        return held({k: v for k, v in o.items() if not k.endswith("bias") or k in m}, names), set()
    if i.get("w13_scale") is not None and i["w13_scale"].dtype == np.uint8:
        return held(twin.moe_mxfp8_marlin(i, p), names), set()
    if r.marlin:
        return held(twin.moe_fp8_marlin(i, p), names), set()
    if "flashinfer" in r.layout:
        return held(twin.fi_cutlass(i, p), names), set()
    return held(twin.trtllm_fp8(i, p), names) if "trtllm" in r.layout else m, set()


def handler(r, prefix, m):
    """By what the module has."""
    if "w13_weight" in m:
        return experts
    dtype = r.dtypes.get(prefix + "weight")
    if "weight_packed" in m and m["weight_packed"].dtype == np.uint8 or "weight_scale_2" in m:
        return nvfp4
    if "weight_packed" in m or "qweight" in m:
        return marlin_integers
    if dtype == "I8":
        return int8
    if dtype == "F8_E4M3" and "weight_scale_inv" in m:
        return marlin_fp8 if r.marlin else None
    if dtype == "F8_E4M3" and "weight_scale" in m:
        if m["weight_scale"].dtype == np.uint8:
            return mxfp8
        if r.gpu == "sm80" or "marlin" in r.layout:
            return marlin_fp8
        return fp8_tensor if m["weight_scale"].ndim < 2 else fp8_channel
    # Qwen3's router is a linear layer like others: vLLM gives it the configuration of quantisation (qwen3_moe.py).
    if re.search(r"-fp8[bc]?(-|$)", r.layout) and prefix.endswith(("_proj.", ".fc1.", ".fc2.", "experts.gate.")):
        return online
    return None


def expected(r):
    """All tensors of the rank as its kernels read them -> arrays, names of views"""
    groups = {}
    for name in r.arrays:
        if not CACHE_SCALES.search(name):
            prefix = name[:name.rfind(".") + 1]
            groups.setdefault(prefix, {})[name[len(prefix):]] = r.arrays[name]
    want, views = {}, set()
    for prefix, m in groups.items():
        use = handler(r, prefix, m)
        made, turned = use(r, prefix, m) if use else (m, set())
        if use and "bias" in m and "bias" not in made:
            made = {**made, "bias": twin.perm(twin.pad2(m["bias"][None], 1, (made.get("weight_scale", made.get("scales"))).shape[-1])[0], twin.P32) if r.marlin else m["bias"]}
        if use and "e_score_correction_bias" in m:
            made = {**made, "e_score_correction_bias": m["e_score_correction_bias"]}
        if prefix.endswith("kv_b_proj."):
            extra, more = latent(r, prefix, m)
            above = prefix[:-len("kv_b_proj.")] + "mla_attn.mla_attn."
            want.update({above + k: v for k, v in extra.items()})
            views |= {above + k for k in more}
        want.update({prefix + k: v for k, v in made.items()})
        views |= {prefix + k for k in turned}
    return want, views


def compare(family, layout, rank):
    r = Rank(family, layout, rank)
    want, views = expected(r)
    with tempfile.TemporaryDirectory() as out:
        run("export", source(family), f"kernel/{layout}/rank-{rank}", out)
        got, _ = load(out)
        manifest = json.loads((pathlib.Path(out) / "manifest.json").read_text())["tensors"]
    wrong = [f"tensors that differ: {sorted(set(got) ^ set(want))[:6]}"] if set(got) != set(want) else []
    if set(manifest) != set(got):
        wrong.append("the manifest lists others")
    for name in sorted(set(got) & set(want)):
        array = np.asarray(want[name])
        if name in views and "-kn" in layout:
            array = np.swapaxes(array, -1, -2)
        if name in views and "-kn" not in layout and "view" not in manifest[name]:
            wrong.append(f"{name}: the manifest does not say that it is a view")
        array = np.ascontiguousarray(array).reshape(array.shape)
        if got[name].shape != array.shape or got[name].tobytes() != array.tobytes():
            wrong.append(f"{name}: {got[name].dtype}{list(got[name].shape)} differs from {array.dtype}{list(array.shape)}")
    return wrong


def main():
    failed = 0
    for family, layout, rank in CASES:
        if len(sys.argv) > 1 and family not in sys.argv[1:] and f"{family}/{layout}" not in sys.argv[1:]:
            continue
        if isinstance(rank, str):
            said = run("plan", source(family), f"kernel/{layout}", ok=False)
            wrong = [] if said.returncode and rank in said.stderr else [f"not refused for '{rank}': {said.stderr}"]
        else:
            wrong = compare(family, layout, rank)
        print(f"{family} {layout}: {'ok' if not wrong else 'WRONG'}")
        for line in wrong[:6]:
            print(f"    {line}")
        failed += bool(wrong)
    print(f"{failed} of {len(CASES)} differ")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
