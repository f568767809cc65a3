#!/bin/bash
# Whatever would write is EROFS, for root too, and stays so when root remounts it read-write. (B171)
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
mount_rankfs
file=$mnt/vllm/tp2/config.json

refused()
{
	if LC_ALL=C "$@" 2>"$work/err"; then fail "worked: $*"; fi
	grep -q 'Read-only file system' "$work/err" || fail "$*: $(cat "$work/err")"
}

everything()
{
	refused bash -c ": >'$file'"
	refused bash -c ": >>'$file'"
	refused bash -c ": >'$mnt/vllm/new'"
	refused truncate -s 0 "$file"
	refused touch "$file"
	refused touch "$mnt/vllm/new"
	refused chmod 600 "$file"
	refused chown 1 "$file"
	refused rm -f "$file"
	refused mkdir "$mnt/vllm/tp2/new"
	refused rmdir "$mnt/vllm/tp2"
	refused mv -T "$file" "$mnt/vllm/tp2/other"
	refused ln "$file" "$mnt/vllm/tp2/other"
	refused ln -s x "$mnt/vllm/tp2/other"
	refused mkfifo "$mnt/vllm/tp2/fifo"
	refused setfattr -n user.x -v y "$file"
	refused setfattr -x user.rankfs.mode "$file"
}

everything
if [ "$(id -u)" -eq 0 ] && mount -o remount,rw "$mnt" 2>/dev/null; then everything; fi
