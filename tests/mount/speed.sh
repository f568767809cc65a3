#!/bin/bash
# What the speed of streaming rests on: requests of 1 MiB, read-ahead raised, and a second reader who is served from the page cache. (B170)
. "$(dirname "$0")/lib.sh"
"$PYTHON" "$root/tests/zoo/gen.py" llama-3.1-8b "$source" --layers 2 >/dev/null
mount_rankfs -o stage=off
[ "$(id -u)" -eq 0 ] || skip "only root can raise the read-ahead"
grep -qx 'ra_kb: 4096' "$mnt/.rankfs/status" || skip "no read-ahead here: $(grep ra_kb "$mnt/.rankfs/status")"
file=$(find "$mnt/vllm/tp1" -name '*.safetensors' -size +200M | head -n 1)

count()
{
	sed -n "s/^rankfs_$1{directory=\"vllm.tp1\",rank=\"0\",stage=\"0\"} //p" "$mnt/.rankfs/stats"
}

# What two readers cost the daemon; prints what is wrong with it.
try()
{
	local reads bytes size
	size=$(stat -c %s "$file") # of which the header was in the page cache
	cat "$file" >/dev/null
	reads=$(count reads_total)
	bytes=$(count read_bytes_total)
	if [ "$bytes" -gt "$size" ] || [ "$bytes" -lt $((size - 65536)) ]; then
		echo "$bytes bytes for a file of $size"
	elif [ $((bytes / reads)) -le 500000 ]; then
		echo "requests of $((bytes / reads)) bytes: read-ahead or max_pages is too small"
	else
		cat "$file" >/dev/null
		[ "$(count reads_total)" -eq "$reads" ] || echo "the second reader made $(($(count reads_total) - reads)) requests"
	fi
}

# Pages that somebody else's need for memory evicts are asked for again: once in three times there must be none.
for _ in 1 2 3; do
	wrong=$(try)
	[ -n "$wrong" ] || exit 0
	umount "$mnt"
	mount_rankfs -o stage=off
done
fail "$wrong"
