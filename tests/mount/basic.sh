#!/bin/bash
# Mount, look, unmount: it returns when the mount can be used, and the daemon ends with the mount.
. "$(dirname "$0")/lib.sh"
model qwen3-8b
mount_rankfs
is_mounted "$mnt" || fail "not in the mount table"
diff -r "$source" "$mnt/source" || fail "source/ differs from the source"
for name in README.txt vllm/tp1/config.json .rankfs/version; do
	test -s "$mnt/$name" || test -n "$(cat "$mnt/$name")" || fail "$name is empty"
done
[ "$(stat -c %a:%u:%g "$mnt/README.txt" "$mnt/vllm" | tr '\n' ' ')" = "444:$(id -u):$(id -g) 555:$(id -u):$(id -g) " ]
[ "$(stat -f -c %S:%a:%l "$mnt")" = 4096:0:255 ] || fail "statfs: $(stat -f "$mnt")"
unmount "$mnt"
is_mounted "$mnt" && fail "still mounted"

serve_rankfs
unmount "$mnt"
wait "$pid" || fail "exit $? after umount: $(cat "$work/log")"
