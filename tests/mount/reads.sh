#!/bin/bash
# Every way to read gives the bytes of `rankfs cat`, of sliced files and of the source's. (B158, B159, B165)
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
mount_rankfs

check()
{
	for how in at_random in_order mapped mapped_after_close direct by_many copied; do
		"$PYTHON" "$here/reads.py" $how "$mnt/$1" "$2" || fail "$1: $how"
	done
}

check source/model-00002-of-00004.safetensors "$source/model-00002-of-00004.safetensors"
(cd "$mnt" && find vllm/tp2 hf/tp4/rank-3 -name '*.safetensors') | sed -n '1p;4p;$p' | while read -r file; do
	"$RANKFS" cat "$source" "$file" >"$work/ref"
	check "$file" "$work/ref"
done
