#!/bin/bash
# A daemon that is killed leaves a dead mount; mounting there again says so and how to go on. (B172)
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
serve_rankfs
exec 5<"$mnt/source/config.json"
kill -KILL "$pid"
wait "$pid" 2>/dev/null || :
exec 5<&-
LC_ALL=C ls "$mnt" 2>&1 | grep -q 'not connected' || fail "no dead mount: $(ls "$mnt" 2>&1)"
fails 32 "daemon has died.*run '.*umount.*$mnt' first" "$RANKFS" "$source" "$mnt"
fails 32 'daemon has died' "$RANKFS" status "$mnt"
unmount "$mnt"
mount_rankfs
test -e "$mnt/vllm/tp1" || fail "not mounted again"
fails 32 "mounted there already, of $source: run '.*umount.*$mnt' first" "$RANKFS" "$source" "$mnt"
