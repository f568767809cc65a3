#!/usr/bin/env python3
"""engine.py GPU WORD CHECKPOINT OUT TP RANK [MORE] - a rank's state as vLLM 0.32 holds it on that GPU, ready for its kernels.

vLLM builds the model, loads the checkpoint and processes its weights (process_weights_after_loading), all of it its own code on a
processor that it takes for a GPU (device.py). What is written in CUDA is written here again, by KERNEL.md: FP8 conversion, Marlin's
tiles, FlashInfer's orders of rows. WORD is one of a layout's (AUTO, MARLIN, …), MORE a JSON object of further options of the
engine. OUT is a safetensors file; tensors that are views with swapped axes are in it as they lie in memory, named in its metadata.
"""
import contextlib
import json
import os
import sys
from unittest.mock import MagicMock

import device

GPU, WORD, CHECKPOINT, OUT, TP, RANK = sys.argv[1:7]
TP, RANK = int(TP), int(RANK)
MORE = json.loads(sys.argv[7]) if len(sys.argv) > 7 else {}
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind",
                  VLLM_ENABLE_V1_MULTIPROCESSING="0")
CAPABILITY = device.pretend(GPU)

import humming_host
import numpy as np
import torch
import vllm._custom_ops as ops
from safetensors.torch import save_file
from vllm.config import set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.sharded_state_loader import ShardedStateLoader
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.utils.torch_utils import set_default_torch_dtype


# ---- what is CUDA in vLLM and FlashInfer ----

def scaled_fp8_quant(input, scale=None, num_token_padding=None, scale_ub=None, use_per_token_if_dynamic=False, output=None,
                     group_shape=None):
    """csrc/quantization/w8a8/fp8/common.cu: a given scale's inverse multiplies, a scale of one's own divides."""
    x, top = input.float(), torch.tensor(448.0)
    if scale is None:
        if not use_per_token_if_dynamic:
            raise NotImplementedError("one scale for all, of the tensor itself")
        scale = (x.abs().amax(-1, keepdim=True) / top).clamp_min(1.0 / (top * 512))
        x = x / scale
    else:
        x = x * (torch.tensor(1.0) / scale.float())
    codes = torch.where(torch.isnan(x), top, x.clamp(-448.0, 448.0)).to(torch.float8_e4m3fn)
    if output is None:
        return codes, scale
    return output.copy_(codes), scale


def dequantised(t, scale):
    """A scale without dimension has the other operand's type on a GPU."""
    return t.to(torch.float16) * (scale.to(torch.float16) if isinstance(scale, torch.Tensor) and scale.dim() == 0 else scale)


def marlin_tiles(q, bits):
    """KERNEL.md 6.1."""
    k, n = q.shape
    tiles = q.reshape(k // 16, 16, n // 64, 64).transpose(0, 2, 1, 3).astype(np.uint32)
    w, t = np.meshgrid(np.arange(4), np.arange(32), indexing="ij")
    cols = 16 * w + t // 4
    rows = [2 * (t % 4) + r for r in (0, 1, 8, 9)]
    v = [tiles[:, :, r, cols] for r in rows] + [tiles[:, :, r, cols + 8] for r in rows]
    out = np.zeros((k // 16, n // 64, 64 * bits // 2), np.uint32)
    if bits == 4:
        word = sum(v[i] << np.uint32(4 * at) for at, i in enumerate((0, 2, 4, 6, 1, 3, 5, 7)))
        out[:, :, 4 * t + w] = word
    else:
        for half in (0, 1):
            out[:, :, 8 * t + 2 * w + half] = sum(v[4 * half + i] << np.uint32(8 * at) for at, i in enumerate((0, 2, 1, 3)))
    return torch.from_numpy(out.reshape(k // 16, -1).view(np.int32).copy())


def fields(words, bits):
    x = words.numpy().view(np.uint32)
    return np.stack([(x >> np.uint32(bits * i)) & np.uint32((1 << bits) - 1) for i in range(32 // bits)], -1)


def repack_gptq(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
    assert b_q_weight.shape == (size_k * num_bits // 32, size_n) and b_q_weight.is_contiguous() and not is_a_8bit
    return marlin_tiles(fields(b_q_weight, num_bits).transpose(0, 2, 1).reshape(size_k, size_n), num_bits)


def repack_awq(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
    assert not is_a_8bit
    order = np.argsort((0, 2, 4, 6, 1, 3, 5, 7) if num_bits == 4 else (0, 2, 1, 3))
    return marlin_tiles(fields(b_q_weight, num_bits)[..., order].reshape(size_k, size_n), num_bits)


def per_expert(repack):
    def go(b_q_weight, size_k, size_n, num_bits, is_a_8bit=False):
        return torch.stack([repack(w.contiguous(), size_k, size_n, num_bits, is_a_8bit) for w in b_q_weight])
    return go


def block_cast(x, block_size=(128, 128), use_ue8m0=False):
    """utils/deep_gemm.py as eager code does it on a GPU: division by a number is a product with its inverse (KERNEL.md 4.3)."""
    m, n = x.shape
    rows, cols = block_size
    padded = torch.zeros(-(-m // rows) * rows, -(-n // cols) * cols, dtype=x.dtype)
    padded[:m, :n] = x
    blocks = padded.view(-1, rows, padded.size(1) // cols, cols)
    scale = blocks.abs().float().amax(dim=(1, 3), keepdim=True).clamp(1e-4) * torch.tensor(1.0 / 448.0, dtype=torch.float32)
    if use_ue8m0:
        scale = torch.pow(2.0, torch.ceil(torch.log2(scale.abs())))
    codes = (blocks * (1.0 / scale)).to(torch.float8_e4m3fn)
    return codes.view_as(padded)[:m, :n].contiguous(), scale.view(blocks.size(0), blocks.size(2))


def required_layout(sf=None, **how):
    """DeepGEMM's transform_sf_into_required_layout (impls/smxx_layout.cuh): F32 scales of blocks stay as they are on Hopper; on
    Blackwell four exponents make a word, the words of a column of rows lie together."""
    if GPU == "sm90":
        return sf
    groups, recipe = how["num_groups"], how["recipe"]
    assert sf.dtype == torch.float32 and recipe[1:] == (128, 128) and not how["is_sfa"] and how["mn"] % 4 == 0
    rows = sf.reshape(groups, -1, sf.shape[-1])[:, torch.arange(how["mn"]) // recipe[1]]
    exponents = torch.nn.functional.pad(rows.view(torch.int32) >> 23, (0, -rows.shape[-1] % 4)).reshape(*rows.shape[:2], -1, 4)
    words = exponents[..., 0] | exponents[..., 1] << 8 | exponents[..., 2] << 16 | exponents[..., 3] << 24
    return torch.empty_strided(words.shape, (words.shape[1] * words.shape[2], 1, words.shape[1]), dtype=torch.int32).copy_(words)


def divided(t, by, divide=torch.Tensor.__truediv__):
    """A GPU multiplies with the inverse of a number (KERNEL.md 0.5)."""
    if isinstance(by, (int, float)) and t.dtype == torch.float32:
        return t * torch.tensor(1.0 / by, dtype=torch.float32)
    return divide(t, by)


def shuffled_rows(x, tile):
    """FlashInfer's get_shuffle_matrix_a_row_indices."""
    block = 32 if tile % 128 == 0 else 16
    m = torch.arange(x.shape[0])
    return m - m % block + (block // 8) * (m % 8) + m % block // 8


def gated_rows(x):
    m = torch.arange(x.shape[0])
    return torch.where(m % 2 == 0, m // 2, x.shape[0] // 2 + m // 2)


def interleaved(scales):
    from vllm.model_executor.layers.quantization.utils.nvfp4_utils import swizzle_blockscale
    return swizzle_blockscale(scales.view(torch.uint8).view(torch.float8_e4m3fn)).view(torch.uint8).reshape(-1)


def w13_rows(cache, x, tile, num_elts_per_sf=None, is_gated_act_gemm=True):
    return (gated_rows(x) if is_gated_act_gemm else torch.arange(x.shape[0]))[shuffled_rows(x, tile)]


def there(known, operators, name):
    try:
        return known(operators, name)
    except AttributeError:
        return MagicMock(name=name)


def replace_cuda():
    import flashinfer
    import flashinfer.fp4_quantization
    import flashinfer.fused_moe.core
    import flashinfer.quantization.fp4_quantization
    import flashinfer.utils
    import vllm.utils.deep_gemm
    from vllm.model_executor.layers.quantization.online import fp8 as online
    from vllm.model_executor.layers.quantization.utils import fp8_utils, marlin_utils, w8a8_utils

    # What layers name for later, and nothing of it is called here.
    known = type(torch.ops._C).__getattr__
    type(torch.ops._C).__getattr__ = lambda self, name: there(known, self, name)
    torch.accelerator.current_device_index = torch.cuda.current_device = lambda: "cpu"
    torch.cuda.device = lambda device: contextlib.nullcontext()
    torch.Tensor.cuda = lambda self, *a, **k: self
    humming_host.replace(CAPABILITY)
    ops.scaled_fp8_quant = scaled_fp8_quant
    ops.gptq_marlin_repack = torch.ops._C.gptq_marlin_repack = repack_gptq
    ops.awq_marlin_repack = torch.ops._C.awq_marlin_repack = repack_awq
    ops.gptq_marlin_moe_repack, ops.awq_marlin_moe_repack = per_expert(repack_gptq), per_expert(repack_awq)
    fp8_utils.per_tensor_dequantize = w8a8_utils.per_tensor_dequantize = dequantised
    online.per_block_cast_to_fp8 = vllm.utils.deep_gemm.per_block_cast_to_fp8 = block_cast
    fp8_utils.transform_sf_into_required_layout = required_layout
    vllm.utils.deep_gemm._fp8_gemm_nt_impl = vllm.utils.deep_gemm._lazy_init = lambda *a, **k: None
    marlin_utils.marlin_make_workspace_new = lambda *a, **k: torch.empty(0, dtype=torch.int32)
    flashinfer.reorder_rows_for_gated_act_gemm = lambda x: x[gated_rows(x)]
    flashinfer.shuffle_matrix_a = lambda x, tile: x[shuffled_rows(x, tile)]
    flashinfer.shuffle_matrix_sf_a = lambda x, tile: interleaved(x[shuffled_rows(x, tile)])
    for module in (flashinfer, flashinfer.fp4_quantization, flashinfer.quantization.fp4_quantization):
        module.nvfp4_block_scale_interleave = module.block_scale_interleave = interleaved
    flashinfer.fused_moe.core._maybe_get_cached_w3_w1_permute_indices = w13_rows
    flashinfer.fused_moe.core.get_w2_permute_indices_with_cache = lambda cache, x, tile, *a, **k: shuffled_rows(x, tile)
    flashinfer.fused_moe.core.get_reorder_rows_for_gated_act_gemm_row_indices = gated_rows
    flashinfer.utils.get_shuffle_matrix_a_row_indices = shuffled_rows


# ---- a rank ----

def play(group, size, rank):
    group = getattr(parallel_state, group)
    if group is not None:
        group.world_size, group.rank_in_group, group.ranks = size, rank, list(range(size))
        group.all_reduce = lambda x: x


def config(**more):
    return EngineArgs(model=CHECKPOINT, load_format="auto", enforce_eager=True, skip_tokenizer_init=True, max_model_len=64, max_num_seqs=1,
                      max_num_batched_tokens=64, allow_deprecated_quantization=True, linear_backend=device.WORDS[WORD], moe_backend=device.WORDS[WORD],
                      **more).create_engine_config()


def load():
    with set_current_vllm_config(config()):
        parallel_state.init_distributed_environment(1, 0, f"tcp://127.0.0.1:{20000 + os.getpid() % 20000}", 0, "gloo")
        parallel_state.ensure_model_parallel_initialized(1, 1)
    ranks = config(tensor_parallel_size=TP, distributed_executor_backend="mp" if TP > 1 else None, **MORE)
    with set_current_vllm_config(ranks):
        for group in ("_TP", "_EP"):
            play(group, TP, RANK)
        loader = get_model_loader(ranks.load_config)
        with set_default_torch_dtype(ranks.model_config.dtype), torch.device("cpu"):
            model = initialize_model(vllm_config=ranks, model_config=ranks.model_config)
        loader.load_weights(model, ranks.model_config)
        torch.Tensor.__truediv__ = divided
        process_weights_after_loading(model, ranks.model_config, torch.device("cpu"))
    return model


def in_memory(t):
    """The tensor as it lies in memory, and whether its last two axes are swapped."""
    if t.dim() >= 2 and t.numel() > 1 and t.stride(-2) == 1 and t.stride(-1) == t.shape[-2]:
        return t.transpose(-1, -2).contiguous(), True
    return t.contiguous(), False


def attention_states(model):
    """W_UK_T and W_UV are no parameters: attributes that the attention keeps."""
    for name, module in model.named_modules():
        for attribute in ("W_UK_T", "W_UV"):
            if isinstance(getattr(module, attribute, None), torch.Tensor):
                yield f"{name}.{attribute}", getattr(module, attribute)


replace_cuda()
MODEL = load()
LIES = {key: in_memory(t) for key, t in MODEL.state_dict().items()}
KEPT = ShardedStateLoader._filter_subtensors({key: t for key, (t, _) in LIES.items()})
LIES = {key: LIES[key] for key in KEPT} | {key: in_memory(t) for key, t in attention_states(MODEL)}
ALSO = {key: [k for k, t in MODEL.state_dict().items() if k != key and t.data_ptr() == LIES[key][0].data_ptr()] for key in LIES}
save_file({key: t.clone() for key, (t, _) in LIES.items()}, OUT,
          {"turned": json.dumps([key for key in LIES if LIES[key][1]]), "also": json.dumps({k: v for k, v in ALSO.items() if v})})
