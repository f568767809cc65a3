#!/bin/bash
# sizes, check and list: figures that add up, problems by name.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
cd "$work"

prints "^LAYOUT  *PER RANK  *ALL RANKS  *FILES$" "$RANKFS" sizes model
grep -q "^vllm/tp2  *1.94 MiB  *3.88 MiB  *10$" out || fail "sizes: $(cat out)"
grep -q "^hf/tp8: .* do not divide by tp 8" out || fail "sizes: $(cat out)"
"$RANKFS" sizes model --json >json
json json 'd["source_bytes"] == 4066816 and d["layouts"][5]["path"] == "hf/tp1"'
json json '[l["bytes_total"] for l in d["layouts"] if l["path"] in ("hf/tp1", "hf/tp2")] == [4066816, 4070400]'

prints "^ok$" "$RANKFS" check model
grep -q "^tensors  *30$" out || fail "check: $(cat out)"
prints "^rank 1: 33 tensors in 5 files, 2,035,248 bytes$" "$RANKFS" check model vllm/tp2
prints "^rank 0 of stage 1: " "$RANKFS" check model vllm/tp2-pp2
"$RANKFS" check model hf/tp4 --json >json
json json 'd["ok"] and len(d["ranks"]) == 4 and d["unread"] == []'
fails 32 "do not divide by tp 3" "$RANKFS" check model vllm/tp3
[ "$(tail -n 1 out)" != ok ] || fail "ok, yet refused"
fails 32 "names no layout" "$RANKFS" check model vllm
for path in airllm hf/layers dcp/tp2 serverlessllm/tp2; do
	prints "^ok$" "$RANKFS" check model $path
done
fails 32 "names no layout: 'dcp/tp8' is one" "$RANKFS" check model dcp
fails 32 "'x' is no engine" "$RANKFS" check model x/tp2

rm model/model-00002-of-00004.safetensors
fails 32 "model-00002-of-00004.safetensors" "$RANKFS" check model
"$RANKFS" check model --json >json 2>/dev/null && fail "a missing shard is ok"
json json 'not d["ok"] and "model-00002-of-00004" in d["error"]'

prints "^| Family .*| Architectures " "$RANKFS" --list
grep -q "^| .*LlamaForCausalLM" out || fail "no Llama in the list"
grep -q "^| BOOL  *|  *8 | \\\\|b1" out || fail "a bar breaks the table"
"$RANKFS" list --json >json
json json '{"families", "refused", "engines", "schemes", "dtypes"} == set(d) and d["dtypes"][0]["Bits"] == "8"'
