#!/bin/bash
# sizes, check and list: figures that add up, problems by name.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
cd "$work"

prints "^LAYOUT  *PER RANK  *ALL RANKS  *PADDING  *FILES$" "$RANKFS" sizes model
grep -q "^vllm/tp2  *1.94 MiB  *3.88 MiB  *0 B  *10$" out || fail "sizes: $(cat out)"
grep -q "^hf/tp8: .* do not divide by tp 8" out || fail "sizes: $(cat out)"
"$RANKFS" sizes model --json >json
json json 'd["source_bytes"] == 4066816 and "hf/tp1" in [l["path"] for l in d["layouts"]]'
json json '[l["bytes_total"] for l in d["layouts"] if l["path"] in ("hf/tp1", "hf/tp2")] == [4066816, 4070400]'

prints "^vllm/tp4 " "$RANKFS" sizes model -o engine=vllm
[ "$(grep -c "^vllm/tp[0-9]* " out)" -eq "$(($(grep -c "MiB" out)))" ] || fail "sizes of other engines: $(cat out)"
prints "^hf/layers " "$RANKFS" sizes model -o engine=hf,tp=4
! grep -q "^hf/tp2\|^vllm" out || fail "sizes of other layouts: $(cat out)"
prints "^vllm@0.24/tp2  *ok$" "$RANKFS" plan model -o engine=vllm@0.24
prints "^ok$" "$RANKFS" check model
grep -q "^tensors  *30$" out || fail "check: $(cat out)"
prints "^rank 1: 33 tensors in 5 files, 2,035,248 bytes$" "$RANKFS" check model vllm/tp2
prints "^rank 0 of stage 1: " "$RANKFS" check model vllm/tp2-pp2
"$RANKFS" check model hf/tp4 --json >json
json json 'd["ok"] and len(d["ranks"]) == 4 and d["skipped"] == []'
json json 'd["held"] == 30 and d["split"] + d["replicated"] == 30 and d["made"] == d["padding_bytes"] == 0'
fails 32 "do not divide by tp 3" "$RANKFS" check model vllm/tp3
[ "$(tail -n 1 out)" != ok ] || fail "ok, yet refused"
fails 32 "names no layout" "$RANKFS" check model vllm
for path in airllm hf/layers dcp/tp2 serverlessllm/tp2; do
	prints "^ok$" "$RANKFS" check model $path
done
fails 32 "names no layout: 'dcp/tp8' is one" "$RANKFS" check model dcp
fails 32 "'x' is no engine" "$RANKFS" check model x/tp2

# Parts side by side, zeros that fill up, tensors that no rank holds.
model qwen2.5-7b-instruct-awq
"$RANKFS" check model vllm/tp2 --json >json
json json 'd["ok"] and d["skipped"] == [] and d["held"] == d["tensors"]'
prints "^ok$" "$RANKFS" check model tensors/tp2
"$RANKFS" plan model vllm/tp2 --json >json
json json 'all("from" in q or q["op"] == "zero" for f in d["files"] for t in f.get("tensors", ()) for p in t["pieces"] \
	if p["op"] == "columns" for q in p["parts"]) and any(p["op"] == "columns" for f in d["files"] for t in f.get("tensors", ()) \
	for p in t["pieces"])'
"$RANKFS" plan model vllm/tp2 --json | cmp -s - json || fail "two plans in JSON differ"
model deepseek-v3
"$RANKFS" check model vllm/tp2 --json >json
json json 'len(d["skipped"]) == 52 and {s["why"] for s in d["skipped"]} == {"a next-n (MTP) layer\u0027s"}'
json json 'd["held"] == d["tensors"] - 52 and d["made"] > 0'
model llama-3.1-8b --vocab 67
"$RANKFS" check model vllm/tp1 --json >json
json json 'd["padding_bytes"] == 2 * 61 * 256 * 2'
model llama-3.1-8b

rm model/model-00002-of-00004.safetensors
fails 32 "model-00002-of-00004.safetensors" "$RANKFS" check model
"$RANKFS" check model --json >json 2>/dev/null && fail "a missing shard is ok"
json json 'not d["ok"] and "model-00002-of-00004" in d["error"]'

prints "^| Family .*| Architectures " "$RANKFS" --list
grep -q "^| .*LlamaForCausalLM" out || fail "no Llama in the list"
grep -q "^| BOOL  *|  *8 | \\\\|b1" out || fail "a bar breaks the table"
"$RANKFS" list --json >json
json json '{"families", "refused", "engines", "schemes", "dtypes"} == set(d) and d["dtypes"][0]["Bits"] == "8"'
