#!/bin/bash
# states.sh - vLLM makes the state of some ranks on GPUs that it believes to have, and kernel/ has the same tensors.
cd "$(dirname "$0")/../.." || exit 1
. tests/engines/lib.sh
engines_need humming-kernels

failed=0
while read -r family layout rank; do
	"$python" tests/kernel/states.py --engine "$family" "$layout" "$rank" || failed=1
done <<'end'
llama-3.1-8b tp1-fp8b 0
llama-3.1-8b-fp8 tp2-marlin 1
llama-3.1-8b-nvfp4 tp2-sm100 1
kimi-k2.5 tp2 1
llama-3.1-8b-w4a16 tp2-sm89 0
qwen3-235b-a22b-fp8 tp1 0
qwen3-235b-a22b-nvfp4-modelopt tp2-sm100 0
gpt-oss-20b tp2-marlin 1
deepseek-v3 tp2-triton 1
end
exit $failed
