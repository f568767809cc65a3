#!/bin/bash
# Inode numbers are unique, and the same at the next mount, in whatever order things are looked up.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
mount_rankfs
find "$mnt" -printf '%i %P\n' | sort >"$work/first"
[ -z "$(cut -d ' ' -f 1 "$work/first" | uniq -d)" ] || fail "one number twice"
[ "$(stat -c %i "$mnt")" -eq 1 ]
unmount "$mnt"
mount_rankfs
stat "$mnt/vllm/tp4/config.json" "$mnt/hf/tp2/rank-1" >/dev/null
find "$mnt" -printf '%i %P\n' | sort | diff "$work/first" - || fail "other numbers at the second mount"
