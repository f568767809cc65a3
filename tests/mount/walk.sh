#!/bin/bash
# ls -lR, find, du, cp, tar and rsync's kind of reading agree with each other on the whole tree.
. "$(dirname "$0")/lib.sh"
model qwen2.5-7b-instruct
mount_rankfs -o tp=2
ls -lR "$mnt" >"$work/ls"
[ "$(grep -c '^-' "$work/ls")" -eq "$(find "$mnt" -type f -not -path '*/.rankfs/*' | wc -l)" ] || fail "ls and find differ"
sums "$mnt" >"$work/sums"
cp -r "$mnt" "$work/copy"
sums "$work/copy" | diff "$work/sums" - || fail "cp -r copied something else"
mkdir "$work/tar"
tar -C "$mnt" --exclude=./.rankfs -cf - . | tar -C "$work/tar" -xf -
sums "$work/tar" | diff "$work/sums" - || fail "tar packed something else"
[ "$(find "$mnt/vllm" -type f -printf '%s\n' | awk '{ n += $1 } END { print n }')" -eq \
	"$(du -sb "$mnt/vllm" | cut -f 1)" ] || fail "du and find differ"
chmod -R u+w "$work/copy" "$work/tar"
