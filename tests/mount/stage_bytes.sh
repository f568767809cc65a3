#!/bin/bash
# Four ranks at once, read in three ways, in memory for a few parts only: the bytes of `rankfs export`, and many were staged.
. "$(dirname "$0")/lib.sh"
mount_staged -o stage=24M
"$RANKFS" export "$source" vllm/tp4 "$work/ref" >/dev/null 2>&1
for how in read mapped random; do
	pids=()
	for rank in 0 1 2 3; do
		"$PYTHON" "$here/load.py" $how "$work/ref" $(ls -v "$mnt"/vllm/tp4/*-rank-$rank-*.safetensors) &
		pids+=($!)
	done
	for each in "${pids[@]}"; do wait "$each" || fail "$how: a rank got other bytes"; done
done
same_as_cat vllm/tp4
[ "$(stage_figure staged_files_total)" -ge 40 ] || fail "only $(stage_figure staged_files_total) files were staged"
[ "$(stage_figure failed_stages_total)" -eq 0 ] || fail "$(cat "$work/log")"
[ "$(stage_figure stage_used_bytes)" -le $((24 << 20)) ] || fail "$(stage_figure stage_used_bytes) bytes of 24 MiB used"
