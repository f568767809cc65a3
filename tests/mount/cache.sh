#!/bin/bash
# A second mount takes what the headers say from the cache and shows the same; one without it, too.
. "$(dirname "$0")/lib.sh"
model qwen3-30b-a3b --layers 12 --experts 32
show()
{
	serve_rankfs -o stage=off "$@"
	(cd "$mnt" && ls -R vllm hf && cat vllm/tp2/config.json && sha256sum vllm/tp2/*.safetensors) >"$work/shown.new"
	unmount "$mnt"
	wait "$pid" || :
	[ ! -e "$work/shown" ] || cmp "$work/shown" "$work/shown.new" || fail "another tree"
	mv "$work/shown.new" "$work/shown"
}
show
grep -q 'headers read (not cached: its files changed' "$work/log" || fail "$(cat "$work/log")"
sleep 2.1
show
grep -q 'headers read, and cached$' "$work/log" || fail "$(cat "$work/log")"
show
grep -q 'headers from the cache$' "$work/log" || fail "$(cat "$work/log")"
show -o nocache
grep -q 'headers read$' "$work/log" || fail "$(cat "$work/log")"
