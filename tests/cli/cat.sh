#!/bin/bash
# cat: the bytes that the checkpoint has, to a file, a pipe and a reader that goes away.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b --hidden 1024 --vocab 4096
echo tokens >"$source/tokenizer.json"
cd "$work"

cmp <("$RANKFS" cat model source/model-00001-of-00004.safetensors) model/model-00001-of-00004.safetensors
cmp <("$RANKFS" cat model vllm/tp2/tokenizer.json) model/tokenizer.json
"$RANKFS" cat model vllm/tp2/model-rank-1-part-1.safetensors >file
"$RANKFS" cat model vllm/tp2/model-rank-1-part-1.safetensors | cmp - file || fail "pipe and file differ"

# Slices, put together by other means.
"$PYTHON" - <<'END' || fail "wrong bytes"
import glob, json, struct, sys
def read(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: (v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items()}
source = {k: v for path in glob.glob("model/*.safetensors") for k, v in read(path).items()}
rank = read("file")
def rows(name):
    shape, data = source["model.layers.0." + name]
    return data[len(data) // 2:]
ok = rank["model.layers.0.self_attn.qkv_proj.weight"][1] == b"".join(rows("self_attn.%s_proj.weight" % x) for x in "qkv")
ok &= rank["model.layers.0.mlp.gate_up_proj.weight"][1] == rows("mlp.gate_proj.weight") + rows("mlp.up_proj.weight")
shape, data = source["model.layers.0.mlp.down_proj.weight"]
width = len(data) // shape[0]
ok &= rank["model.layers.0.mlp.down_proj.weight"][1] == b"".join(
    data[r * width + width // 2:(r + 1) * width] for r in range(shape[0]))
sys.exit(not ok)
END

"$RANKFS" cat model tensors/tp2/rank-1/model/norm/weight.npy | head -c 6 | cmp - <(printf '\x93NUMPY') || fail "no .npy"
size=$("$RANKFS" plan model tensors/tp2/rank-1/lm_head | sed -n 's/^# .*npy, \([0-9]*\) bytes/\1/p')
[ "$("$RANKFS" cat model tensors/tp2/rank-1/lm_head/weight.npy | wc -c)" -eq "$size" ] || fail "not $size bytes"
prints "^first  *-*0\.[0-9]* *$" "$RANKFS" cat model tensors/tp2/rank-1/lm_head/weight.txt
prints "^LlamaForCausalLM, BF16, 30 tensors" "$RANKFS" cat model README.txt
prints "^nothing is mounted$" "$RANKFS" cat model .rankfs/status

# A reader that has seen enough is no error; a full disk is.
for path in source/model-00001-of-00004.safetensors vllm/tp2/model-rank-0-part-1.safetensors; do
	("$RANKFS" cat model $path; echo $? >code) 2>err | head -c 10 >/dev/null
	[ ! -s err ] || fail "a closed pipe: $(cat err)"
	(trap '' PIPE; "$RANKFS" cat model $path; echo $? >code) 2>err | head -c 10 >/dev/null
	[ ! -s err ] && [ "$(cat code)" -eq 0 ] || fail "a closed pipe: exit $(cat code), $(cat err)"
	fails 2 "$path: cannot be written: No space left" bash -c '"$1" cat model "$2" >/dev/full' - "$RANKFS" $path
done
fails 32 "there is no 'x' in vllm/tp2" "$RANKFS" cat model vllm/tp2/x
fails 32 "'tp2' is a directory" "$RANKFS" cat model vllm/tp2
fails 32 "'config.json' is a file, not a directory" "$RANKFS" cat model vllm/tp2/config.json/x
