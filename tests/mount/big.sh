#!/bin/bash
# A checkpoint of full size, its data a hole: mounting is quick, offsets above 2 GiB are right, memory stays small.
. "$(dirname "$0")/lib.sh"
"$PYTHON" "$root/tests/zoo/gen.py" llama-3.1-70b "$source" >/dev/null || skip "no sparse files here"
shard=$(find "$source" -name '*.safetensors' -size +2G | sort | head -n 1)
for at in 2147480000 2147483647 2147483649 2160000000 4000000000; do
	printf 'rankfs%d' $at | dd of="$shard" bs=1 seek=$at conv=notrunc status=none
done
serve_rankfs
"$PYTHON" "$here/reads.py" far "$mnt/source/${shard##*/}" "$shard"
ls -lR "$mnt/vllm/tp8" >/dev/null
part=$(find "$mnt/vllm/tp8" -name '*.safetensors' | sort | sed -n 7p)
[ "$(head -c 20000000 "$part" | wc -c)" -eq 20000000 ] || fail "$part is short"
[ "$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")" -lt 300000 ] || fail "$(grep VmHWM "/proc/$pid/status")"
