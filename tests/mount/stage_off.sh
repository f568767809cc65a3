#!/bin/bash
# stage=off: the same bytes, nothing staged, and status says why.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
serve_rankfs -o stage=off
same_as_cat vllm/tp2
[ "$(stage_figure staged_files_total)" -eq 0 ] || fail "files were staged"
grep -q '^staging: no (stage=off)$' "$mnt/.rankfs/status" || fail "$(cat "$mnt/.rankfs/status")"
grep -q '^vllm/tp2 .* streamed$' "$mnt/.rankfs/status" || fail "$(cat "$mnt/.rankfs/status")"
fails 1 "option 'stage=no': wanted is a size from 1M to 1T, or off" "$RANKFS" -o stage=no "$source" "$mnt"
