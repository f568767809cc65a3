#!/bin/bash
# plans.sh [--write] - what every byte of a rank is made of, as text: the plans of a few small checkpoints against those that
# are kept beside this. A change that means to change a plan runs --write and shows the difference to whoever reviews it.
. "$(dirname "$0")/../cli/lib.sh"
golden=$root/tests/golden

# To add a plan: a line, and --write. NAME, PATH, then the arguments of tests/zoo/gen.py.
plans="
llama            vllm/tp2      llama-3.1-8b --layers 1
llama-stages     vllm/tp1-pp2  llama-3.1-8b --layers 2
llama-kv         vllm/tp4      llama-3.1-8b --layers 1 --kv-heads 2
llama-hf         hf/tp2        llama-3.1-8b --layers 1
llama-f16        vllm/tp1-f16  llama-3.1-8b --layers 1
vocabulary       vllm/tp2      falcon-7b --layers 1 --vocab 67
tied             vllm/tp2      qwen3-0.6b --layers 1
conv1d           vllm/tp2      gpt2 --layers 1
rotary           vllm/tp2      mistral-7b-v0.3 --layers 1
experts          vllm/tp2      qwen3-30b-a3b --layers 1 --experts 2
experts-whole    vllm/tp2-ep   qwen3-30b-a3b --layers 1 --experts 2
experts-older    vllm@0.20/tp1 qwen3-30b-a3b --layers 1 --experts 2
latent           vllm/tp2      deepseek-v3 --layers 1 --experts 2
blocks-fine      vllm/tp2      qwen3-235b-a22b-fp8 --layers 1 --experts 2 --head-dim 128 --moe-inter 384
blocks-padded    vllm/tp2-padded qwen3-235b-a22b-fp8 --layers 1 --experts 2 --head-dim 128 --moe-inter 384
packed           vllm/tp2      qwen2.5-7b-instruct-awq --layers 1
groups           vllm@0.28/tp2 qwen2.5-7b-instruct-gptq-int4 --layers 1
sglang-shared    sglang/tp2    glm-4.5 --layers 1 --experts 2 --set first_k_dense_replace=0
sglang-turned    sglang/tp2    llama-3.1-8b-fp8 --layers 1
sglang-marlin    sglang/tp2    qwen2.5-7b-instruct-gptq-int4 --layers 1
kernel-fp8       kernel/tp2    llama-3.1-8b-fp8 --layers 1
kernel-marlin    kernel/tp2-marlin llama-3.1-8b-w4a16 --layers 1
kernel-online    kernel/tp2-fp8c   llama-3.1-8b --layers 1
kernel-latent    kernel/tp2-triton deepseek-v3 --layers 1 --experts 2
kernel-fp4       kernel/tp1-sm100  qwen3-235b-a22b-nvfp4-modelopt --layers 1 --experts 2
"
cd "$work"
while read -r name path arguments; do
	[ -n "$name" ] || continue
	# shellcheck disable=SC2086 # the arguments are several words
	model $arguments
	"$RANKFS" plan model "$path" >plan 2>err || fail "$name: $(cat err)"
	if [ "${1:-}" = --write ]; then
		cp plan "$golden/$name.txt"
	else
		diff "$golden/$name.txt" plan >difference || fail "$name: the plan has changed (tests/golden/plans.sh --write):
$(head -n 20 difference)"
	fi
done <<<"$plans"
