#!/usr/bin/env python3
"""choices.py GPU - which kernels vLLM 0.32 itself takes on a GPU, for weights of every format: choices.tsv.

    for gpu in sm80 sm89 sm90 sm100; do python choices.py $gpu; done >../unit/data/choices.tsv

vLLM's own code chooses (device.py), in the virtual environment of tests/engines/install.sh humming-kernels. A line: GPU, format of
the weights, linear or experts, made on the way or not, the model's dtype, rows and columns (experts: the intermediate size of a rank, the hidden size), marks, and the kernels taken for each word of a
layout; "-" where vLLM refuses to start. test_process.c compares the table in slicer/engine_kernel.c with it.
"""
import sys
import types
from unittest.mock import MagicMock

import device
from device import WORDS

if len(sys.argv) != 2 or sys.argv[1] not in device.GPUS:
    raise SystemExit(__doc__)
GPU = sys.argv[1]
CAPABILITY = device.pretend(GPU)

import torch
import vllm.config.vllm as current
import vllm.model_executor.kernels.linear as linear
from compressed_tensors.quantization import QuantizationArgs
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearLayerConfig
from vllm.model_executor.layers.fused_moe import config as moe_config
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.experts.cutlass_moe import CutlassExpertsMxfp4
from vllm.model_executor.layers.fused_moe.oracle import fp8, int_wna16, mxfp4, mxfp8, nvfp4, unquantized
from vllm.model_executor.layers.quantization.auto_awq import AutoAWQConfig
from vllm.model_executor.layers.quantization.auto_gptq import AutoGPTQConfig
from vllm.model_executor.layers.quantization.utils import quant_utils as q
from vllm.model_executor.layers.quantization.utils.w8a8_utils import cutlass_fp8_supported
from vllm.scalar_type import scalar_types

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}
ROUTING = moe_config.RoutingMethodType
BLOCK_ACTIVATIONS = q.create_fp8_quant_key(static=False, group_shape=q.GroupShape(1, 128))


def block_weights(rows):
    return q.create_fp8_quant_key(static=True, group_shape=q.GroupShape(rows, rows))


class Config:
    """As much of a VllmConfig as kernels look at."""

    def __init__(self, backend, dtype):
        self.kernel_config = types.SimpleNamespace(linear_backend=backend, linear_backend_per_quant=None, moe_backend=backend)
        self.model_config = types.SimpleNamespace(dtype=dtype, quantization=None, quantization_config=None,
                                                  hf_text_config=types.SimpleNamespace(model_type="llama"))
        self.quantization_config = None
        self.compilation_config = self.parallel_config = MagicMock()


# ---- linear layers ----

def fp8_linear(activations, weights):
    def ask(a):
        config = linear.FP8ScaledMMLinearLayerConfig(weight_quant_key=weights, activation_quant_key=activations, input_dtype=a.dtype,
                                                     out_dtype=a.dtype, weight_shape=(a.n, a.k))
        blocks = activations.scale.group_shape.is_per_group()
        return linear.choose_scaled_mm_linear_kernel(
            config=config, quantization="fp8_block_w8a8" if blocks else "fp8_w8a8",
            possible_kernels=linear._POSSIBLE_FP8_BLOCK_KERNELS if blocks else linear._POSSIBLE_FP8_KERNELS)
    return ask


def fp8_weight_only(weights):
    """compressed-tensors keeps activations in the model's dtype where the GPU has no FP8, or where the checkpoint wants it."""
    def ask(a):
        config = linear.FP8ScaledMMLinearLayerConfig(weight_quant_key=weights, activation_quant_key=q.kFp8StaticTensorSym,
                                                     input_dtype=a.dtype, out_dtype=a.dtype, weight_shape=(a.n, a.k))
        return linear.choose_scaled_mm_linear_kernel(config, linear._POSSIBLE_WFP8A16_KERNELS, quantization="w8a16_fp8")
    return ask


def int8_linear(channel, static):
    def ask(a):
        config = linear.Int8ScaledMMLinearLayerConfig(is_channelwise=channel, is_static_input_scheme=static, input_symmetric=True)
        return linear.choose_scaled_mm_linear_kernel(config, linear._POSSIBLE_INT8_KERNELS, quantization="int8_w8a8")
    return ask


def packed_linear(kind, group, zero_points):
    def ask(a):
        return linear.choose_mp_linear_kernel(MPLinearLayerConfig(
            full_weight_shape=(a.k, a.n), partition_weight_shape=(a.k, a.n), weight_type=kind, act_type=a.dtype, group_size=group,
            zero_points=zero_points))
    return ask


PER_TOKEN = q.kFp8DynamicTokenSym if cutlass_fp8_supported() else q.kFp8DynamicTensorSym
FP8_LINEAR = [("FP8 per tensor", "", "", PER_TOKEN, q.kFp8StaticTensorSym),
              ("FP8 per tensor", "", "fixed", q.kFp8StaticTensorSym, q.kFp8StaticTensorSym),
              ("FP8 per channel, input bound", "", "", q.kFp8DynamicTokenSym, q.kFp8StaticTokenSym),
              ("FP8 blocks", "", "", BLOCK_ACTIVATIONS, block_weights(128)),
              ("plain", "fp8", "", PER_TOKEN, q.kFp8StaticTensorSym),
              ("plain", "fp8c", "", q.kFp8DynamicTokenSym, q.kFp8StaticChannelSym),
              ("plain", "fp8b", "", BLOCK_ACTIVATIONS, block_weights(128))]
if CAPABILITY >= 89:  # compressed-tensors' alone, below
    FP8_LINEAR.insert(2, ("FP8 per channel", "", "", q.kFp8DynamicTokenSym, q.kFp8StaticChannelSym))
INT4, INT8 = (scalar_types.uint4b8, scalar_types.uint4), (scalar_types.uint8b128, scalar_types.uint8)
PACKED = [("packed integers, groups", bits, types_[asymmetric], asymmetric, group)
          for bits, types_ in ((4, INT4), (8, INT8)) for asymmetric in (0, 1) for group in (32, 128)]
PACKED += [("GPTQ", 4, INT4[0], 0, 128), ("GPTQ", 8, INT8[0], 0, 128), ("AWQ", 4, INT4[1], 1, 128)]


def linear_questions():
    for name, online, marks, activations, weights in FP8_LINEAR:
        for dtype in DTYPES:
            for n, k in ((4096, 4096), (4128, 4096), (4096, 4160), (4104, 4104)):
                yield name, online, dtype, n, k, marks, fp8_linear(activations, weights)
    for name, weights in (("FP8 per tensor", q.kFp8StaticTensorSym), ("FP8 per channel", q.kFp8StaticChannelSym)):
        usual = fp8_linear(q.kFp8DynamicTokenSym, weights) if CAPABILITY >= 89 else fp8_weight_only(weights)
        yield name, "", "BF16", 4096, 4096, "compressed", usual
        yield name, "", "BF16", 4096, 4096, "compressed,weight_only", fp8_weight_only(weights)
    for channel in (0, 1):
        for static in (0, 1):
            name = f"INT8 per {'channel' if channel else 'tensor'}{', static inputs' if static else ''}"
            yield name, "", "BF16", 4096, 4096, "fixed" if static else "", int8_linear(bool(channel), bool(static))
    for name, bits, kind, asymmetric, group in PACKED:
        for n, k in ((4096, 4096), (4128, 4096), (4096, 4128 if group == 32 else 4224), (4096, 64 if group == 32 else 128)):
            marks = ",".join(["bits8"] * (bits == 8) + ["asymmetric"] * asymmetric + [f"group{group}"])
            yield name, "", "BF16", n, k, marks, packed_linear(kind, group, bool(asymmetric))
    for name in ("NVFP4", "NVFP4 of ModelOpt"):
        yield name, "", "BF16", 4096, 4096, "fixed", lambda a: type(linear.init_nvfp4_linear_kernel(use_a16=False))
        yield name, "", "BF16", 4096, 4096, "", lambda a: type(linear.init_nvfp4_linear_kernel(use_a16=True))
    # compressed_tensors.py: CompressedTensorsW4A4Mxfp4() whatever the activations are.
    yield "MXFP4", "", "BF16", 4096, 4096, "", lambda a: type(linear.init_mxfp4_linear_kernel(activation_quant_key=q.kMxfp4Dynamic))
    for n, k in ((4096, 4096), (4128, 4096), (4096, 4128), (64, 128)):
        yield "MXFP8", "", "BF16", n, k, "", lambda a: type(linear.init_mxfp8_linear_kernel(weight_shape=(a.n, a.k)))


# ---- experts ----

def experts(a, **more):
    spread = "ep" in a.marks
    parallel = moe_config.FusedMoEParallelConfig(
        tp_size=1, pcp_size=1, dp_size=1, ep_size=8 if spread else 1, tp_rank=0, pcp_rank=0, dp_rank=0, ep_rank=0, sp_size=1,
        use_ep=spread, all2all_backend="allgather_reducescatter", enable_eplb=False)
    return moe_config.FusedMoEConfig(**(dict(
        num_experts=64, experts_per_token=8, hidden_dim=a.k, intermediate_size=a.n, num_local_experts=8 if spread else 64,
        num_logical_experts=64, activation=MoEActivation.SILU, device="cpu",
        routing_method=ROUTING.Default if "unnormalised" in a.marks else ROUTING.RenormalizeNaive, moe_parallel_config=parallel,
        in_dtype=a.dtype, moe_backend=a.backend) | more))


def gpt_oss(a):
    return experts(a, activation=MoEActivation.SWIGLUOAI, routing_method=ROUTING.Renormalize, has_bias=True, swiglu_limit=7.0)


def fp8_experts(weights, activations, cutlass, made_by_row=False):
    def ask(a):
        backend = fp8.select_fp8_moe_backend(experts(a), weights, activations, cutlass)
        # Fp8PtpcOnlineMoEMethod takes no other kernels.
        if made_by_row and backend[0].name in ("MARLIN", "FLASHINFER_CUTLASS", "FLASHINFER_TRTLLM"):
            raise ValueError
        return backend
    return ask


def packed_experts(bits, asymmetric, group):
    key = q.QuantKey((INT4 if bits == 4 else INT8)[asymmetric], q.kInt4StaticGroupScale if bits == 4 else q.kInt8StaticGroupScale,
                     symmetric=not asymmetric)
    quant = QuantizationArgs(num_bits=bits, type="int", symmetric=not asymmetric, group_size=group, strategy="group")
    return lambda a: int_wna16.select_wna16_moe_backend(config=experts(a), weight_key=key, quant_config=quant, may_have_bias=False,
                                                        may_have_zp=bool(asymmetric), allow_tile_padding=True)


def awq_experts(a):
    quant = AutoAWQConfig(weight_bits=4, group_size=128, zero_point=True, lm_head_quantized=False, modules_to_not_convert=[])
    return int_wna16.select_wna16_moe_backend(experts(a), q.kInt4Static, quant_config=quant, may_have_zp=True, may_have_bias=True,
                                              allow_tile_padding=True)


def gptq_experts(a):
    quant = AutoGPTQConfig(weight_bits=4, group_size=128, desc_act=False, is_sym=True, lm_head_quantized=False, dynamic={},
                           full_config={})
    key = q.QuantKey(INT4[0], q.kInt4StaticGroupScale)
    return int_wna16.select_wna16_moe_backend(experts(a), key, quant_config=quant, may_have_zp=False, may_have_bias=True,
                                              allow_tile_padding=True)


def mxfp4_of_compressed_tensors(a):
    """CompressedTensorsW4A4Mxfp4MoEMethod, whatever is asked for."""
    return types.SimpleNamespace(name="VLLM_CUTLASS" if CutlassExpertsMxfp4._supports_current_device() else "MARLIN"), None


def expert_questions():
    tensor, channel = q.kFp8StaticTensorSym, q.kFp8StaticChannelSym
    formats = [("plain", "", "", lambda a: unquantized.select_unquantized_moe_backend(experts(a))),
               ("FP8 per tensor", "", "", fp8_experts(tensor, q.kFp8DynamicTensorSym, False)),
               ("FP8 per tensor", "", "fixed", fp8_experts(tensor, q.kFp8StaticTensorSym, False)),
               ("FP8 per tensor", "", "fixed,compressed", fp8_experts(tensor, q.kFp8StaticTensorSym, True)),
               ("FP8 per channel", "", "", fp8_experts(channel, q.kFp8DynamicTokenSym, True)),
               ("FP8 blocks", "", "", fp8_experts(q.kFp8Static128BlockSym, q.kFp8Dynamic128Sym, False)),
               ("FP8 blocks", "", "finer", fp8_experts(block_weights(64), q.kFp8Dynamic128Sym, False)),
               ("plain", "fp8", "", fp8_experts(tensor, q.kFp8DynamicTensorSym, False)),
               ("plain", "fp8c", "", fp8_experts(channel, q.kFp8DynamicTokenSym, True, True)),
               ("plain", "fp8b", "", fp8_experts(q.kFp8Static128BlockSym, q.kFp8Dynamic128Sym, False)),
               ("NVFP4", "", "fixed", lambda a: nvfp4.select_nvfp4_moe_backend(experts(a), q.kNvfp4Static, q.kNvfp4Dynamic)),
               ("NVFP4", "", "", lambda a: nvfp4.select_nvfp4_moe_backend(experts(a), q.kNvfp4Static, None)),
               ("NVFP4 of ModelOpt", "", "fixed", lambda a: nvfp4.select_nvfp4_moe_backend(experts(a), q.kNvfp4Static, q.kNvfp4Dynamic)),
               ("NVFP4 of ModelOpt", "", "", lambda a: nvfp4.select_nvfp4_moe_backend(experts(a), q.kNvfp4Static, None)),
               ("MXFP8", "", "", lambda a: mxfp8.select_mxfp8_moe_backend(experts(a))),
               ("MXFP4", "", "", mxfp4_of_compressed_tensors),
               ("MXFP4 blocks of all experts", "", "", lambda a: mxfp4.select_mxfp4_moe_backend(gpt_oss(a))),
               ("AWQ", "", "asymmetric,group128", awq_experts), ("GPTQ", "", "group128", gptq_experts)]
    formats += [("packed integers, groups", "", ",".join(["bits8"] * (bits == 8) + ["asymmetric"] * asymmetric + [f"group{group}"]),
                 packed_experts(bits, asymmetric, group)) for bits in (4, 8) for asymmetric in (0, 1) for group in (32, 128)]
    for name, online, marks, ask in formats:
        for more in ("", "ep", "unnormalised"):
            for dtype in DTYPES:
                yield name, online, dtype, 2048, 4096, ",".join(m for m in (marks, more) if m), ask


# ---- asking ----

def answer(ask, word, dtype, n, k, marks):
    config = Config(WORDS[word], DTYPES[dtype])
    before, current._current_vllm_config = current._current_vllm_config, config
    try:
        taken = ask(types.SimpleNamespace(dtype=DTYPES[dtype], n=n, k=k, marks=marks.split(","), backend=WORDS[word]))
    except (ValueError, NotImplementedError):
        return "-"
    finally:
        current._current_vllm_config = before
    return taken[0].name if isinstance(taken, tuple) else taken.__name__


for kind, questions in (("linear", linear_questions()), ("experts", expert_questions())):
    for name, online, dtype, n, k, marks, ask in questions:
        print(GPU, name, kind, online, dtype, n, k, marks, *(answer(ask, word, dtype, n, k, marks) for word in WORDS), sep="\t")
