#!/bin/bash
# Weights that are replaced by rename, or removed, under a mount: it goes on serving what it opened.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
mount_rankfs
sums "$mnt/vllm/tp2" >"$work/before"
unmount "$mnt"
mount_rankfs
head -c 1000000 /dev/urandom >"$work/new"
mv "$work/new" "$source/model-00002-of-00004.safetensors"
rm "$source/model-00003-of-00004.safetensors"
sums "$mnt/vllm/tp2" | diff "$work/before" - || fail "other bytes after a rename"
