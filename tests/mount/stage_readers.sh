#!/bin/bash
# 64 readers of eight ranks at once. (B169)
. "$(dirname "$0")/lib.sh"
mount_staged -o stage=32M
"$RANKFS" export "$source" vllm/tp8 "$work/ref" >/dev/null 2>&1
pids=()
for reader in $(seq 64); do
	"$PYTHON" "$here/load.py" $( ((reader % 2)) && echo read || echo mapped) "$work/ref" \
		$(ls -v "$mnt"/vllm/tp8/*-rank-$((reader % 8))-*.safetensors) &
	pids+=($!)
done
for each in "${pids[@]}"; do wait "$each" || fail "a reader got other bytes"; done
[ "$(stage_figure staged_files_total)" -gt 0 ] || fail "nothing was staged"
[ "$(stage_figure failed_stages_total)" -eq 0 ] || fail "$(cat "$work/log")"
