#!/bin/bash
# Wrong command lines: one line, exit 1, nothing mounted. A wrong source or mount point: exit 32. (B173, B174)
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
usage()
{
	fails 1 "$@"
	is_mounted "$mnt" && fail "mounted all the same: ${*:2}"
	:
}
usage "option 'tpp' is not known" "$RANKFS" "$source" "$mnt" -o tpp=8
usage "number from 1 to 1024" "$RANKFS" "$source" "$mnt" -o ro,tp=many
usage "given twice" "$RANKFS" "$source" "$mnt" -o tp=2 -o tp=4
usage "wanted are a SOURCE and a MOUNTPOINT" "$RANKFS" "$source"
usage "all that is wanted" "$RANKFS" "$source" "$mnt" extra
usage "no such option" "$RANKFS" "$source" "$mnt" -z
usage "wants an argument" "$RANKFS" "$source" "$mnt" -o
fails 32 'no such directory: make it first' "$RANKFS" "$source" "$work/nowhere"
fails 32 'not a directory' "$RANKFS" "$source" "$source/config.json"
fails 32 "$work/nowhere" "$RANKFS" "$work/nowhere" "$mnt"
mkdir "$work/empty"
fails 32 . "$RANKFS" "$work/empty" "$mnt"
is_mounted "$mnt" && fail "mounted without a checkpoint"
"$RANKFS" help mount | grep -q 'tp .*1 to 1024' || fail "help mount does not list the options"
"$RANKFS" -V | grep -q '^rankfs ' || fail "-V"

# The three standard files closed: nothing else may get their numbers.
mount_rankfs -o tp=2 <&- >&- 2>&-
cmp "$source/config.json" "$mnt/source/config.json"
