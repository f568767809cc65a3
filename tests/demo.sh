#!/bin/bash
# demo.sh - what rankfs does, in a minute: make a small checkpoint of a real family's shape, mount it, look around, and
# prove that the two ranks of tensors put back together are the source.
set -euo pipefail
cd "$(dirname "$0")/.."

rankfs=${RANKFS:-$PWD/build/release/rankfs}
python=${PYTHON:-python3}
work=$(mktemp -d -t rankfs-demo-XXXXXX)
mounted=

finish()
{
	test -z "$mounted" || fusermount3 -u "$work/mnt"
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

say()
{
	if test -t 1; then
		printf '\n\033[1m# %s\033[0m\n' "$*"
	else
		printf '\n# %s\n' "$*"
	fi
}

show()
{
	printf '$ %s\n' "$*"
	"$@"
}

if ! test -r /dev/fuse; then
	echo "no /dev/fuse here (a container?): nothing can be mounted. 'rankfs export' writes the same files without it."
	exit 1
fi

say "A checkpoint as it comes from the hub: Llama 3.1 8B's names, dtypes and files, made small (4 layers)"
"$python" tests/zoo/gen.py llama-3.1-8b "$work/llama" --tiny --fill --layers 4 >"$work/log"
show ls -l "$work/llama"

say "Mount it"
mkdir "$work/mnt"
show "$rankfs" "$work/llama" "$work/mnt"
mounted=1
show ls "$work/mnt" "$work/mnt/vllm" "$work/mnt/vllm/tp2"

say "The files that each of two vLLM ranks loads; computed as they are read, nothing is stored"
show ls -l "$work/mnt/vllm/tp2"

say "The same for people: one rank's tensors as folders"
show find "$work/mnt/tensors/tp2/rank-1/model/layers/0" -type f
show cat "$work/mnt/tensors/tp2/rank-1/model/layers/0/self_attn/qkv_proj/weight.txt"

say "Bytes per rank: which layout fits my GPUs?"
show "$rankfs" sizes "$work/llama"

say "Read every rank through the mount, put the slices together, compare with the source"
show "$python" tests/rejoin.py "$work/llama" "$work/mnt/vllm/tp2"
