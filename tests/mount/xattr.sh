#!/bin/bash
# Extended attributes of a tensor's file, a weight file, a file of the source and a directory.
. "$(dirname "$0")/lib.sh"
command -v getfattr >/dev/null || skip "no getfattr (package attr)"
model llama-3.1-8b
mount_rankfs
cd "$mnt"

value()
{
	getfattr --only-values -n "user.rankfs.$1" "$2"
}

tensor=$(find tensors/tp2/rank-1 -name weight.npy | grep qkv_proj | head -n 1)
[ "$(value dtype "$tensor")" = BF16 ] || fail "dtype $(value dtype "$tensor")"
value shape "$tensor" | grep -qx '[0-9]*,[0-9]*' || fail "shape $(value shape "$tensor")"
value source "$tensor" | grep -q '^model-0000[1-4]-of-00004.safetensors:[0-9]*+[0-9]*' ||
	fail "source $(value source "$tensor")"
[ "$(value source source/config.json)" = config.json ]
if grep -q '^passthrough: yes' .rankfs/status; then passed="passed through"; else passed=streamed; fi
[ "$(value mode source/config.json)" = "$passed" ] || fail "mode $(value mode source/config.json)"
[ "$(value mode "$tensor")" = streamed ] || fail "mode $(value mode "$tensor")"
[ "$(value mode .rankfs/status)" = live ]
[ "$(getfattr -m - "$tensor" | grep -c user.rankfs)" -eq 4 ] || fail "$(getfattr -m - "$tensor")"
[ "$(getfattr -m - source/config.json | grep -c user.rankfs)" -eq 2 ] || fail "$(getfattr -m - source/config.json)"
[ -z "$(getfattr -m - vllm)" ] || fail "a directory has some"
LC_ALL=C getfattr -n user.other "$tensor" 2>&1 | grep -q 'No such attribute' || fail "user.other is not ENODATA"
