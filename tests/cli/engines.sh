#!/bin/bash
# engines: why each of them cannot hold a model, the same sentence from plan, check and export.
. "$(dirname "$0")/lib.sh"
cd "$work"

# FAMILY, PATH, what is said; of one family its lines follow one another.
refusals="
falcon-7b                  sglang/tp1         SGLang has no FalconForCausalLM
llama-3.1-8b-fp8-modelopt  sglang/tp1         SGLang loads ModelOpt's checkpoints with a loader of their own
llama-3.1-8b-fp8-modelopt  serverlessllm/tp1  F8_E4M3, for which ServerlessLLM's store has no name
llama-3.1-8b-fp8-modelopt  meta/mp1           has no biases and no quantisation
llama-3.1-8b-fp8-modelopt  gguf               llama.cpp wants 'model.layers.0.self_attn.q_proj.weight' in BF16, F16 or F32
deepseek-v4-flash          dcp/tp1            is F8_E8M0, which torch's reader does not know
gpt2                       airllm             and would lose tensor 'h.0.attn.bias'
gpt2                       gguf               GGUF is written for Llama, Mistral, Qwen2 and Qwen3, not for GPT2LMHeadModel
kimi-k2-instruct           deepseek/mp1       'model.layers.0.self_attn.rotary_emb.inv_freq': DeepSeek's reference code has no place for it
qwen3-8b                   meta/mp1           Meta's code runs LlamaForCausalLM, not Qwen3ForCausalLM
qwen3-8b                   gpt-oss            runs GptOssForCausalLM, not Qwen3ForCausalLM
qwen3-8b                   deepseek/mp1       runs DeepSeek V2, V3, R1, V3.2 and V4, not Qwen3ForCausalLM
"
last=
while read -r family path why; do
	[ -n "$family" ] || continue
	[ "$family" = "$last" ] || model "$family"
	last=$family
	fails 32 "$path: .*$why" "$RANKFS" plan model "$path"
	fails 32 "$path: .*$why" "$RANKFS" check model "$path"
	fails 32 "$path: .*$why" "$RANKFS" export model "$path" "$work/export"
	[ ! -e "$work/export" ] || fail "$path: something was exported"
	"$RANKFS" plan model | grep -q "^$path  *no: \|^${path%/*}/tp1  *no: " || fail "$path: the summary does not say no"
done <<<"$refusals"
