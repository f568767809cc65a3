# shellcheck shell=bash
# lib.sh - for the tests of this directory: a temporary directory, small checkpoints in it, mounts below it.
#
#     . "$(dirname "$0")/lib.sh"
#     model llama-3.1-8b                # a checkpoint in $source
#     mount_rankfs -o tp=2              # on $mnt
#     cmp "$source/config.json" "$mnt/source/config.json" || fail "config.json differs"
#
# Whatever is mounted below $work is unmounted at the end, by a trap; so is a test that a signal ends. A test that cannot run
# here says why and exits with 77. RANKFS is the program, PYTHON the interpreter. A test that needs root, and a mount namespace
# of its own to change things in, sets own_namespace before it reads this file. RANKFS_TEST_OPTIONS are options for the mounts of
# all tests, such as memory=memfd: whatever the mode, the bytes are the same.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck disable=SC2034 # for the tests
here=$root/tests/mount
RANKFS=${RANKFS:-$root/build/release/rankfs}
PYTHON=${PYTHON:-python3}
export RANKFS

skip()
{
	echo "$*"
	exit 77
}

fail()
{
	echo "${0##*/}: $*" >&2
	exit 1
}

if [ "${own_namespace:-}" ] && [ -z "${INSIDE:-}" ]; then
	[ "$(id -u)" -eq 0 ] || skip "needs root"
	INSIDE=1 exec unshare -m --propagation private "$0"
fi

test -x "$RANKFS" || skip "no $RANKFS: build it first"
test -r /dev/fuse && test -w /dev/fuse || skip "no /dev/fuse that may be opened"

work=$(mktemp -d)
source=$work/model
mnt=$work/mnt
mkdir "$mnt"
export XDG_CACHE_HOME=$work/cache # not the user's own

# Mount points below $work, the last mounted first.
mounts()
{
	awk -v work="$work/" 'index($5, work) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r at; do
		printf '%b\n' "$at"
	done
}

unmount()
{
	if [ "$(id -u)" -eq 0 ]; then umount "$@"; else fusermount3 -u "$@"; fi
}

cleanup()
{
	cd /
	mounts | while read -r at; do
		unmount "$at" 2>/dev/null || umount -l "$at" 2>/dev/null || fusermount3 -uz "$at" || :
	done
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

# model FAMILY [FLAG…]: a small filled checkpoint in $source.
model()
{
	"$PYTHON" "$root/tests/zoo/gen.py" "$1" "$source" --tiny --fill "${@:2}" >/dev/null
}

# mount_rankfs [FLAG…]
mount_rankfs()
{
	"$RANKFS" -o "${RANKFS_TEST_OPTIONS:-}" "$@" "$source" "$mnt"
}

is_mounted()
{
	awk -v at="$1" '$5 == at && / - fuse\.rankfs / { found = 1 } END { exit !found }' /proc/self/mountinfo
}

# Until a command succeeds, ten seconds at most.
wait_for()
{
	for _ in $(seq 100); do
		if "$@"; then return; fi
		sleep 0.1
	done
	fail "waited in vain for: $*"
}

# Serve in the foreground: $pid is the daemon, $work/log what it says.
serve_rankfs()
{
	: >"$work/log"
	"$RANKFS" -f -o "${RANKFS_TEST_OPTIONS:-}" "$@" "$source" "$mnt" 2>>"$work/log" &
	pid=$!
	wait_for grep -q "is mounted on" "$work/log"
}

# fails CODE PATTERN COMMAND…: it ends with that code, and its one line on stderr has the pattern.
fails()
{
	local want=$1 pattern=$2 code=0
	shift 2
	"$@" >"$work/out" 2>"$work/err" || code=$?
	[ $code -eq "$want" ] || fail "exit $code and not $want: $*: $(cat "$work/err")"
	grep -q -e "$pattern" "$work/err" || fail "no '$pattern' in: $(cat "$work/err")"
	[ "$(wc -l <"$work/err")" -eq 1 ] || fail "more than a line: $(cat "$work/err")"
}

# Every file below a directory, as lines of checksum and name.
sums()
{
	(cd "$1" && find . -type f -not -path '*/.rankfs/*' -print0 | sort -z | xargs -0 sha256sum)
}

# A checkpoint of 75 MB, whose parts are long enough to be staged.
model_of_parts()
{
	"$PYTHON" "$root/tests/zoo/gen.py" llama-3.1-8b "$1" --fill --layers 8 --hidden 512 --inter 2048 --vocab 4096 \
		--heads 8 --kv-heads 8 >/dev/null
}

# One in $source, mounted with a budget of these options. Skips where nothing is staged.
mount_staged()
{
	[[ ${RANKFS_TEST_OPTIONS:-} != *stage=* ]] || skip "$RANKFS_TEST_OPTIONS"
	model_of_parts "$source"
	serve_rankfs "$@"
	grep -q '^staging: no' "$mnt/.rankfs/status" && skip "$(grep '^staging' "$mnt/.rankfs/status")"
	:
}

# stage_figure NAME: one of rankfs_staged_files_total, …
stage_figure()
{
	sed -n "s/^rankfs_$1 //p" "$mnt/.rankfs/stats"
}

# same_as_cat DIRECTORY: each weight file of the mount has the bytes that `rankfs cat` gives.
same_as_cat()
{
	(cd "$mnt" && find "$1" -name '*.safetensors' | sort -V) | while read -r file; do
		"$RANKFS" cat "$source" "$file" | cmp - "$mnt/$file" || fail "$file differs"
	done
}
