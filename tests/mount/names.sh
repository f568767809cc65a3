#!/bin/bash
# Layouts that are not listed work by path; no layout is ENOENT, an impossible one EINVAL, and again the second time.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
serve_rankfs

says()
{
	LC_ALL=C ls "$mnt/$2" 2>&1 >/dev/null | grep -q "$1" || fail "$2: $(ls "$mnt/$2" 2>&1), and not: $1"
}

test -e "$mnt/vllm/tp1-pp2" || fail "vllm/tp1-pp2 is not there"
for _ in 1 2; do
	says 'No such file' vllm/tp02
	says 'No such file' vllm/readme
	says 'No such file' nowhere
	says 'No such file' source/nowhere
	says 'Invalid argument' vllm/tp3
done
says 'Not a directory' README.txt/x
[ "$(grep -c 'vllm/tp3' "$work/log")" -eq 1 ] || fail "the log should say once why: $(cat "$work/log")"
