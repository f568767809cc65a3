#!/bin/bash
# `rankfs status` says of each weight file whether it is in memory, how many have it open, and how these are served.
. "$(dirname "$0")/lib.sh"

# row FILE: its row but for the size; fields are apart by one space.
row()
{
	"$RANKFS" status "$mnt" | tr -s ' ' | sed -n "s/^vllm.tp1.$1 //p" | sed -E 's/ [0-9.,]+ [KMG]?i?B / /'
}

is()
{
	[ "$(row "$1")" = "$2" ]
}

mount_staged -o stage=64M
part0=model-rank-0-part-0.safetensors part1=model-rank-0-part-1.safetensors part9=model-rank-0-part-9.safetensors
is $part0 "" || fail "nobody has opened it: $("$RANKFS" status "$mnt")"
exec 8<"$mnt/vllm/tp1/$part0"
cat <&8 >/dev/null
wait_for is $part0 "streamed 1 streamed"
wait_for is $part1 "staged 0 -"
exec 9<"$mnt/vllm/tp1/$part1"
wait_for is $part1 "staged 1 passed"
grep -q "^rankfs_file_bytes{directory=\"vllm/tp1\",file=\"$part1\",state=\"staged\"} $(stat -c %s "$mnt/vllm/tp1/$part1")\$" \
	"$mnt/.rankfs/stats" || fail "no bytes: $(cat "$mnt/.rankfs/stats")"
grep -q "^rankfs_file_open{directory=\"vllm/tp1\",file=\"$part1\"} 1\$" "$mnt/.rankfs/stats"
exec 8<&- 9<&-
wait_for is $part0 ""
wait_for is $part1 "staged 0 -"
is $part9 "" || fail "nobody wants it yet: $("$RANKFS" status "$mnt")"
