#!/bin/bash
# A user without privileges mounts through fusermount3, reads, and unmounts; others are kept out.
own_namespace=yes
. "$(dirname "$0")/lib.sh"
test -u "$(command -v fusermount3)" || skip "no setuid fusermount3"
# The device may be root's alone; in this mount namespace it is everybody's.
mknod "$work/fuse" c 10 229
chmod 666 "$work/fuse"
mount --bind "$work/fuse" /dev/fuse
chmod 755 "$work"
model llama-3.1-8b
chown 65534:65534 "$mnt"
nobody="setpriv --reuid=65534 --regid=65534 --clear-groups"
$nobody test -x "$RANKFS" || { cp "$RANKFS" "$work/rankfs" && RANKFS=$work/rankfs; }

$nobody "$RANKFS" "$source" "$mnt"
[ "$($nobody stat -c %u "$mnt/vllm")" -eq 65534 ] || fail "not owned by the mounter"
$nobody cmp "$source/config.json" "$mnt/source/config.json"
$nobody cat "$mnt/.rankfs/status" | grep -q '^ra_kb: .*Permission denied' || fail "status does not say that only root raises ra_kb"
ls "$mnt" 2>/dev/null && fail "root reads it without allow_other"
$nobody fusermount3 -u "$mnt"

if ! grep -qx user_allow_other /etc/fuse.conf; then
	! $nobody "$RANKFS" -o allow_other "$source" "$mnt" 2>/dev/null || fail "allow_other without user_allow_other"
fi
