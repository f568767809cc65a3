#!/bin/bash
# Memory for a single part: what does not fit in time is streamed; and a budget below any part stages nothing.
. "$(dirname "$0")/lib.sh"
mount_staged -o stage=10M
for _ in 1 2; do same_as_cat vllm/tp1; done
[ "$(stage_figure staged_files_total)" -gt 0 ] || fail "nothing was staged"
unmount "$mnt"
serve_rankfs -o stage=1M
same_as_cat vllm/tp1
[ "$(stage_figure staged_files_total)" -eq 0 ] || fail "$(stage_figure staged_files_total) files were staged in 1 MiB"
