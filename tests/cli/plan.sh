#!/bin/bash
# plan: the summary, a layout, one file, one tensor; as text and as JSON; what is refused, and why.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
cd "$work"

prints "^LlamaForCausalLM, BF16, 30 tensors in 4 files, 3.88 MiB$" "$RANKFS" plan model
prints "^vllm/tp2  *ok$" "$RANKFS" plan model
prints "^hf/tp16  *no: model.layers.0" "$RANKFS" plan model

prints "^# vllm/tp2/model-rank-1-part-0.safetensors, 131176 bytes$" "$RANKFS" plan model vllm/tp2
for line in \
	"model.embed_tokens.weight BF16 [256, 256] = model.embed_tokens.weight[256:512]" \
	"model.layers.0.self_attn.attn._k_scale F32 [] = all 1.0" \
	"model.layers.2.mlp.down_proj.weight BF16 [256, 256] = model.layers.2.mlp.down_proj.weight[0:256, 256:512]" \
	"model.layers.1.self_attn.qkv_proj.weight BF16 [256, 256] = model.layers.1.self_attn.q_proj.weight[128:256] ++ \
model.layers.1.self_attn.k_proj.weight[64:128] ++ model.layers.1.self_attn.v_proj.weight[64:128]" \
	"model.norm.weight BF16 [256] = model.norm.weight"; do
	grep -qxF "$line" out || fail "no line '$line'"
done
[ "$(grep -c "^# .*rank-[01]-part" out)" -eq 10 ] || fail "not ten parts"
cp out first
"$RANKFS" plan model vllm/tp2 | cmp - first || fail "two plans differ"

prints "^model.norm.weight" "$RANKFS" plan model vllm/tp2/model-rank-0-part-4.safetensors
[ "$(grep -c ^ out)" -eq 3 ] || fail "a file's plan has more than the file"
prints "^model.norm.weight" "$RANKFS" plan model tensors/tp2/rank-0/model/norm
[ "$(grep -c ^ out)" -eq 2 ] || fail "a tensor's plan has more than the tensor"
prints "^# hf/tp2/rank-1/model-00002-of-00005.safetensors" "$RANKFS" plan model /hf/tp2/rank-1/
prints "^# source/config.json, [0-9]* bytes$" "$RANKFS" plan model source

"$RANKFS" plan model --json >json
json json 'd["architecture"] == "LlamaForCausalLM" and d["bytes"] == 4066816'
json json '[l["ok"] for l in d["layouts"] if l["path"].startswith(("vllm/", "hf/tp"))] == [True, True, True, False, False] * 2'
json json '"tp 16" in d["layouts"][4]["why"]'
"$RANKFS" plan model vllm/tp2 --json >json
json json 'sum(p["bytes"] for f in d["files"] for t in f.get("tensors", ()) for p in t["pieces"]) == \
	sum(t["bytes"] for f in d["files"] for t in f.get("tensors", ()))'
json json '[t["shape"] for t in d["files"][0]["tensors"]] == [[256, 256]]'

# Every engine has its rules, and says why not.
prints "^hf/layers  *ok$" "$RANKFS" plan model
prints "^airllm  *ok$" "$RANKFS" plan model
prints "^deepseek/mp1  *no: DeepSeek's reference code runs" "$RANKFS" plan model
prints "^# airllm/splitted_model/model.layers.0.safetensors, " "$RANKFS" plan model airllm
prints "^# hf/layers/model-00002-of-00005.safetensors, " "$RANKFS" plan model hf/layers
prints "^# dcp/tp2/shard-00002-model-00001-of-00005.safetensors, " "$RANKFS" plan model dcp/tp2
prints "^# serverlessllm/tp2/rank_1/tensor.data_0, " "$RANKFS" plan model serverlessllm/tp2
fails 32 "runs GptOssForCausalLM, not LlamaForCausalLM" "$RANKFS" plan model gpt-oss
fails 32 "not LlamaForCausalLM" "$RANKFS" plan model deepseek/mp2
fails 32 "gguf: .*tokenizer.json does not exist" "$RANKFS" plan model gguf

fails 32 "do not divide by tp 3" "$RANKFS" plan model vllm/tp3
fails 32 "'x' is no layout" "$RANKFS" plan model vllm/x
fails 32 "there is no 'vlm' in the tree" "$RANKFS" plan model vlm/tp2
fails 1 "wanted is vllm, .*, hf, deepseek" "$RANKFS" plan model -o engine=hf/layers
fails 32 "only tp4 is shown, not tp2" "$RANKFS" plan model vllm/tp2 -o tp=4
fails 2 "standard output: No space left" bash -c '"$1" plan model >/dev/full' - "$RANKFS"

# Older releases: other names, no listing for each model.
prints "^model.layers.0.self_attn.qkv_proj.weight" "$RANKFS" plan model vllm@0.24/tp2
"$RANKFS" plan model | grep "^vllm@" && fail "the summary lists older releases"
fails 32 "vllm@0.19 is not known: vllm is 0.32, and there are vllm@0.28, vllm@0.24, vllm@0.20" "$RANKFS" plan model vllm@0.19/tp2

# A reader that has seen enough.
[ "$("$RANKFS" plan model vllm/tp4 2>&1 | head -n 1 | wc -l)" -eq 1 ] || fail "plan | head"
("$RANKFS" plan model vllm/tp4; echo $? >code) 2>err | sleep 0.1
[ ! -s err ] || fail "a closed pipe is an error: $(cat err)"

model gpt2
prints "c_attn.weight BF16 \[384, 256\] = cast(BF16): h.0.attn.c_attn.weight.T\[128:256\] ++ h.0" "$RANKFS" plan model vllm/tp2
model falcon-7b --vocab 67
prints "^lm_head.weight .* = lm_head.weight\[64:67\] ++ 61 zero rows$" "$RANKFS" plan model vllm/tp2
# Experts in blocks that a rank would cut: finer ones, or for another MoE backend whole ones, the last filled up.
model qwen3-235b-a22b-fp8 --head-dim 128 --moe-inter 384
prints "w2_weight_scale_inv .*each element 2 x 2 times" "$RANKFS" plan model vllm/tp2
prints "w2_weight F8_E4M3 \[4, 256, 256\] .* (by columns: .*weight\[0:256, 256:384\] ++ 128 zero columns)" "$RANKFS" plan model vllm/tp2-padded
prints "w2_weight_scale_inv .*weight_scale_inv\[0:2, 2:3\] ++ all 1.0)" "$RANKFS" plan model vllm/tp2-padded
fails 32 "there is nothing to pad" "$RANKFS" plan model vllm/tp1-padded
fails 32 "there is nothing to pad" "$RANKFS" plan model vllm/tp2-ep-padded
fails 32 "'tp2-padded' is no layout" "$RANKFS" plan model vllm@0.28/tp2-padded
model qwen3-235b-a22b-fp8 --head-dim 128 --moe-inter 384 --heads 8 --kv-heads 8 --experts 8
fails 32 "a share of 48 rows is no whole number of blocks of 128 (tp 1, 2, 4 work) (vllm/tp8-padded works)" "$RANKFS" plan model vllm/tp8
prints "w2_weight_scale_inv .* = (by columns: all 1.0)\|w2_weight_scale_inv .* = all 1.0" "$RANKFS" plan model vllm/tp8-padded
model qwen3-235b-a22b-fp8 --head-dim 128 --moe-inter 192
prints "w2_weight_scale_inv .*each element 4 x 4 times" "$RANKFS" plan model vllm/tp2
fails 32 "experts of 192 x 256 in blocks of 128 cannot be padded to whole ones" "$RANKFS" plan model vllm/tp2-padded
model qwen3-30b-a3b
prints "^model.layers.0.mlp.experts.w13_weight" "$RANKFS" plan model vllm@0.20/tp1
prints "^model.layers.0.mlp.experts.routed_experts.w13_weight" "$RANKFS" plan model vllm/tp1

# Layers that predict further tokens are not the main model's, but hf/ is the whole checkpoint.
model deepseek-v3
prints "next-n (MTP) layers are not part" "$RANKFS" check model
[ "$("$RANKFS" plan model vllm/tp1 | grep -c "layers\.5\.")" -eq 0 ] || fail "vllm/ has a draft's layer"
prints "^model.layers.5.eh_proj.weight" "$RANKFS" plan model hf/tp2

# DeepSeek's converter copies the tokenizer; nothing else stands beside the ranks' files.
model deepseek-v2-lite
touch model/tokenizer.json model/notes.txt
prints "^deepseek/mp2  *ok$" "$RANKFS" plan model
prints "^# deepseek/mp2/model1-mp2.safetensors, " "$RANKFS" plan model deepseek/mp2
grep -q "^# deepseek/mp2/tokenizer.json, 0 bytes" out || fail "no tokenizer"
! grep -q "config.json\|notes" out || fail "more than the converter leaves"
fails 32 "'tp2' is no layout: mp8, mp32, mp8-fp8 are some" "$RANKFS" plan model deepseek/tp2
prints "^# deepseek/mp2/model0-mp2.safetensors" "$RANKFS" plan model deepseek -o tp=2
# Not one layout of an engine: the reason is that of the one that is asked for.
model deepseek-r1-awq
fails 32 "kernel/tp1: self_attn.q_a_proj: AWQ for sm90: .* add -marlin to the layout" "$RANKFS" plan model kernel/tp1
fails 32 "kernel/tp2-marlin: self_attn.kv_b_proj: AWQ for sm90: .* identity matrix" "$RANKFS" plan model kernel/tp2-marlin
fails 32 "kernel/tp1-sm80: self_attn.kv_b_proj: AWQ for sm80: .* identity matrix" "$RANKFS" cat model kernel/tp1-sm80/rank-0/x
model gpt-oss-20b
prints "^# gpt-oss/model.safetensors, " "$RANKFS" plan model gpt-oss

# DeepSeek V4's experts as FP8: whole blocks, a scale for each group.
model deepseek-v4-flash
expert=layers.0.ffn.experts.0.w1
prints "^$expert.weight F8_E4M3 \[256, 256\] = ($expert.weight x $expert.scale a group of a row" \
	"$RANKFS" plan model deepseek/mp1-fp8
prints "^$expert.scale F8_E8M0 \[2, 2\] = ($expert.scale, one / 64 for a block of 128 x 128" "$RANKFS" plan model deepseek/mp1-fp8
prints "^ok$" "$RANKFS" check model deepseek/mp2-fp8
fails 32 "'tp2-fp8' is no layout" "$RANKFS" plan model vllm/tp2-fp8
"$PYTHON" - model/*.safetensors <<-END
	import sys
	for path in sys.argv[1:]:
	    data = open(path, "rb").read()
	    name = b'"mtp.0.ffn.experts.0.w1.scale":{"dtype":'
	    open(path, "wb").write(data.replace(name + b'"F8_E8M0"', name + b'"F8_E4M3"'))
END
fails 32 "'mtp.0.ffn.experts.0.w1.weight': it has not one scale of F8_E8M0 for each 32 elements" "$RANKFS" plan model deepseek/mp1-fp8
prints "^# deepseek/mp1/" "$RANKFS" plan model deepseek/mp1
model deepseek-v4-flash --moe-inter 192
fails 32 "w1.weight': 192 x 256 F4 elements are no whole blocks of 128 x 128" "$RANKFS" plan model deepseek/mp1-fp8
