#!/bin/bash
# What staged files are kept in, and streaming all, asked for by options or because the machine refuses better: the same bytes, and
# `status` and `doctor` say what and why.
own_namespace=yes
. "$(dirname "$0")/lib.sh"
RANKFS_TEST_OPTIONS=
mount_staged -o stage=24M
unmount "$mnt"

# serves PATTERN [OPTION…]: a line of the status is that, and the bytes are right, twice.
serves()
{
	serve_rankfs "${@:2}"
	for _ in 1 2; do same_as_cat vllm/tp2; done
	grep -q "$1" "$mnt/.rankfs/status" || fail "no '$1' in: $(cat "$mnt/.rankfs/status")"
	staged=$(stage_figure staged_files_total)
	unmount "$mnt"
}

# stages KIND [OPTION…]: in memory of that kind.
stages()
{
	serves "^staging: .* of 24.0 MiB used ($1), " -o stage=24M "${@:2}"
	[ "$staged" -ge 8 ] || fail "$1: only $staged files were staged"
}

# with COMMAND…: from now on rankfs is run by this command.
with()
{
	printf '#!/bin/sh\nexec %s "$@"\n' "$* $RANKFS" >"$work/wrapped"
	chmod +x "$work/wrapped"
	RANKFS=$work/wrapped
}

stages 'tmpfs with huge pages'
stages 'tmpfs; it was asked for' -o memory=tmpfs
stages 'memfd; it was asked for' -o memory=memfd
serves '^passthrough: no (nopassthrough)$' -o nopassthrough
[ "$staged" -eq 0 ] || fail "$staged files were staged without passthrough"
serves '^staging: no (nothing is passed through)$' -o nopassthrough
fails 1 "option 'memory=disk': wanted is huge, tmpfs, memfd" "$RANKFS" -o memory=disk "$source" "$mnt"

# Huge pages are denied, so far as this mount namespace can see.
thp=/sys/kernel/mm/transparent_hugepage/shmem_enabled
if test -e $thp; then
	echo 'always within_size advise never [deny] force' >"$work/deny"
	mount --bind "$work/deny" $thp
	stages "tmpfs; huge pages are denied in $thp"
	"$RANKFS" doctor | grep -q "^staging  *yes .*, tmpfs; huge pages are denied" || fail "$("$RANKFS" doctor)"
	umount $thp
fi

# No tmpfs can be made.
with "$PYTHON" "$here/deny.py"
"$RANKFS" -V >/dev/null || skip "no seccomp here"
stages 'memfd; no tmpfs: Operation not permitted'
"$RANKFS" doctor | grep -q '^staging  *yes .*, memfd; no tmpfs: Operation not permitted$' || fail "$("$RANKFS" doctor)"
