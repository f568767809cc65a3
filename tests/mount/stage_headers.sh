#!/bin/bash
# Reading only headers, of all ranks, with read(2) and through mappings, stages nothing, and asks for nothing that is not in the
# page cache since the files were opened.
. "$(dirname "$0")/lib.sh"
mount_staged
for _ in 1 2; do "$PYTHON" "$here/load.py" headers - $(ls -v "$mnt"/vllm/tp[124]/*.safetensors); done
[ "$(stage_figure staged_files_total)" -eq 0 ] || fail "$(stage_figure staged_files_total) files were staged for headers"
[ "$(stage_figure stage_used_bytes)" -eq 0 ] || fail "$(stage_figure stage_used_bytes) bytes of memory were taken"
reads=$(sed -n 's/^rankfs_reads_total{directory="vllm.*} //p' "$mnt/.rankfs/stats" | paste -sd+)
[ $((reads)) -eq 0 ] || fail "$((reads)) requests were made for headers"
