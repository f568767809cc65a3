"""humming_host.py - Humming's own kernels for weights (humming-kernels 0.1.17), compiled for a processor.

What transform.py does in torch is run as it is; repack_weight is its CUDA source, whose 32 threads run one after another, twice: in
the second run each finds in shared memory what all have put there. Packing and unpacking integers is written here again.
"""
import ctypes
import functools
import pathlib
import shutil
import subprocess
import tempfile
import types

import numpy as np
import torch

HEAD = r"""
#include <cassert>
#include <cstdint>
struct dim { uint32_t x = 0, y = 0, z = 0; };
static dim threadIdx, blockIdx, blockDim, gridDim;
#define __global__ static
#define __shared__ static
#define __syncthreads()
#define CUDA_INLINE static inline
#define PRAGMA_UNROLL
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
constexpr uint32_t static_next_power_of_2(uint32_t n) { uint32_t p = 1; while (p < n) p *= 2; return p; }
"""
TAIL = r"""
extern "C" void run(const uint32_t *in, uint32_t *out, uint32_t experts, uint32_t n, uint32_t k, uint32_t mode)
{
	gridDim = { (n + 63) / 64, (k + 63) / 64, experts };
	blockDim = { 32, 1, 1 };
	for (blockIdx.z = 0; blockIdx.z < gridDim.z; blockIdx.z++)
		for (blockIdx.y = 0; blockIdx.y < gridDim.y; blockIdx.y++)
			for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
				for (int again = 0; again < 2; again++)
					for (threadIdx.x = 0; threadIdx.x < 32; threadIdx.x++)
						weight_repack_nk<%s>(in, out, nullptr, n, k, n, k, mode);
}
"""


@functools.cache
def kernel(arguments):
    import humming
    source = (pathlib.Path(humming.__file__).parent / "include/humming/kernel/process.cuh").read_text()
    lines = [line for line in source.splitlines() if not line.startswith("#include")]
    with tempfile.TemporaryDirectory() as there:
        path = pathlib.Path(there) / "repack.cc"
        path.write_text(HEAD + "\n".join(lines) + TAIL % arguments)
        compiler = shutil.which("g++") or "clang++"
        subprocess.run([compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-w", path, "-o", f"{there}/repack.so"], check=True)
        return ctypes.CDLL(f"{there}/repack.so").run


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


def repack_weight(inputs, weight_bits, activation_bits, is_weight_packed, should_preprocess_for_int2fp=False,
                  should_preprocess_with_zp=False, interleave_mode=3, use_packed_k_layout=False, use_native_dequant=False, **others):
    if activation_bits != 16 or should_preprocess_with_zp or use_packed_k_layout:
        raise NotImplementedError("weights for activations of 8 bits, or with zero points")
    run = kernel(f"{weight_bits}, 16, {int(is_weight_packed)}, {int(should_preprocess_for_int2fp)}, 0, 0, 0, 0, {int(use_native_dequant)}")
    inputs = inputs.contiguous()
    *experts, n, k = inputs.shape
    k = k * 32 // weight_bits if is_weight_packed else k
    out = torch.zeros(*experts, k // 16, n * 16 * weight_bits // 32, dtype=torch.int32)
    run(pointer(inputs), pointer(out), *(experts or [1]), n, k, interleave_mode)
    return out


def unpack_weight(inputs, num_bits):
    words = inputs.contiguous().numpy().view(np.uint32)
    codes = np.stack([(words >> np.uint32(num_bits * i)) & np.uint32((1 << num_bits) - 1) for i in range(32 // num_bits)], -1)
    return torch.from_numpy(codes.reshape(*words.shape[:-1], -1).view(np.int32).copy())


def pack_weight(inputs, num_bits):
    codes = inputs.contiguous().numpy().view(np.uint32)
    codes = codes.reshape(*codes.shape[:-1], -1, 32 // num_bits) & np.uint32((1 << num_bits) - 1)
    words = sum(codes[..., i] << np.uint32(num_bits * i) for i in range(32 // num_bits))
    return torch.from_numpy(words.astype(np.uint32).view(np.int32).copy())


def replace(capability):
    """For humming.transform and what vLLM asks it, on a GPU of that compute capability."""
    import humming.device
    import humming.ops
    import vllm.utils.humming as vllm_humming

    gpu = types.SimpleNamespace(index=0, sm_version=capability, sm_major=capability // 10, sm_minor=capability % 10, is_ppu=False,
                                sm_count=132, name="GPU")
    humming.device.DeviceInfo.__init__ = lambda self, index=None: (setattr(self, "_index", 0), setattr(self, "_value", gpu))[0]
    humming.device._get_device_info_extension = lambda: types.SimpleNamespace(_DeviceInfo=lambda index: gpu)
    humming.ops.repack_weight, humming.ops.unpack_weight, humming.ops.pack_weight = repack_weight, unpack_weight, pack_weight
    vllm_humming._patched = True
    vllm_humming.create_humming_locks = lambda device: torch.empty(0, dtype=torch.int32)
