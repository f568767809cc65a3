#!/bin/bash
# What the speed of streaming rests on: requests of 1 MiB, read-ahead raised, and a second reader who is served from the page cache.
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

cat "$file" >/dev/null
reads=$(count reads_total)
bytes=$(count read_bytes_total)
size=$(stat -c %s "$file") # of which the header was in the page cache
[ "$bytes" -le "$size" ] && [ "$bytes" -ge $((size - 65536)) ] || fail "$bytes bytes for a file of $size"
[ $((bytes / reads)) -gt 500000 ] || fail "requests of $((bytes / reads)) bytes: read-ahead or max_pages is too small"
cat "$file" >/dev/null
[ "$(count reads_total)" -eq "$reads" ] || fail "the second reader made $(($(count reads_total) - reads)) requests"
