#!/bin/bash
# What .rankfs/ and `rankfs status` say after some reads.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
mount_rankfs -o part=1M,stage=off
cat "$mnt"/vllm/tp2/*rank-1-*.safetensors >/dev/null
# All but the headers, which were in the page cache.
bytes=$(sed -n 's/^rankfs_read_bytes_total{directory="vllm.tp2",rank="1".*} //p' "$mnt/.rankfs/stats")
size=$(cat "$mnt"/vllm/tp2/*rank-1-*.safetensors | wc -c)
[ "$bytes" -le "$size" ] && [ "$bytes" -ge $((size / 2)) ] || fail "$bytes bytes for files of $size"
status=$("$RANKFS" status "$mnt")
grep -q "^vllm/tp2 *1 " <<<"$status" || fail "no row for vllm/tp2, rank 1: $status"
grep -q "^vllm/tp2 *0 " <<<"$status" && fail "a row for rank 0, which nobody read: $status"
[ "$(stat -c %s "$mnt/.rankfs/status")" -eq 0 ]
grep -q "^source=$source\$" "$mnt/.rankfs/settings"
grep -q '^part=1048576$' "$mnt/.rankfs/settings"
grep -q '^rankfs ' "$mnt/.rankfs/version"
for sample in "rankfs_read_bytes_total{directory=\"vllm/tp2\",rank=\"1\",stage=\"0\"} $bytes" 'rankfs_info{version=' \
	'rankfs_open_files{directory="vllm/tp2",rank="1",stage="0"} '; do
	grep -qF "$sample" "$mnt/.rankfs/stats" || fail "no $sample in: $(cat "$mnt/.rankfs/stats")"
done
"$RANKFS" status "$mnt" --json | "$PYTHON" -c '
import json, sys
status = json.load(sys.stdin)
rows = {(s["name"], s.get("rank")): s["value"] for s in status["stats"]}
assert rows["rankfs_read_bytes_total", "1"] == int(sys.argv[1]), rows
assert status["settings"]["part"] == "1048576", status["settings"]
' "$bytes" || fail "--json is wrong"
timeout 3 "$RANKFS" status --watch "$mnt" >"$work/watch" || :
[ "$(grep -c '^rankfs ' "$work/watch")" -ge 2 ] || fail "--watch printed once"
fails 32 'nothing is mounted' "$RANKFS" status "$source"
fails 1 'wanted is MOUNT' "$RANKFS" status
