#!/bin/bash
# bench.sh [--quick] - what the mount costs beside plain files: a table, for BENCHMARKS.md.
#
# Each speed stands beside that of plain files with the same bytes (`rankfs export`), read in turn with them in the same
# run: medians, after a round to warm up, everything in the page cache. Only the ratio means something on another machine,
# and only on a quiet one. Checkpoints are made once, in $RANKFS_BENCH (default ~/.cache/rankfs-bench).
#
#   first touch   staged in memory for four parts a reader, so that all but one are made anew in each round
#   warm          all of it has been staged before
#   streaming     -o stage=off: through FUSE and its page cache
#   limit         the two copies that staging makes, without FUSE (tests/bench/limit.c)
set -eu
cd "$(dirname "$0")/.."

RANKFS=${RANKFS:-$PWD/build/release/rankfs}
PYTHON=${PYTHON:-python3}
CC=${CC:-cc}
cache=${RANKFS_BENCH:-${XDG_CACHE_HOME:-$HOME/.cache}/rankfs-bench}
rounds=5
name=full
layouts='1x1 2x1 8x1 2x2 8x8' # ranks of a layout x those that load at once
shape=(--layers 16 --hidden 3072 --heads 24 --kv-heads 8 --inter 8192 --vocab 32768)
if [ "${1:-}" = --quick ]; then
	rounds=3
	name=quick
	layouts='1x1 8x8'
	shape=(--layers 10 --hidden 2048 --heads 16 --kv-heads 8 --inter 8192 --vocab 16384)
fi

work=$(mktemp -d)
mnt=$work/mnt
plain=$work/plain
mkdir -p "$mnt" "$work/slots" "$cache"
export XDG_CACHE_HOME=$work/headers # of rankfs itself
mkdir -p "$XDG_CACHE_HOME"

cleanup()
{
	umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt" 2>/dev/null || :
	umount -l "$work/slots" 2>/dev/null || :
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

for tool in noise load limit cost; do
	$CC -O2 -std=gnu11 -D_GNU_SOURCE -o "$work/$tool" tests/bench/$tool.c -pthread
done

# checkpoint NAME FAMILY FLAG…: sparse, in $cache/NAME.
checkpoint()
{
	local dir=$cache/$1
	[ -e "$dir/done" ] && return
	rm -rf "$dir"
	"$PYTHON" tests/zoo/gen.py "$2" "$dir" "${@:3}" >/dev/null
	[ "$1" = "$name" ] && "$work/noise" "$dir"/*.safetensors
	touch "$dir/done"
}

row()
{
	printf '| %-58s | %9s | %9s | %5s |\n' "$@"
}

ratio()
{
	awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (a > 0 ? b / a : 0) }'
}

mount_rankfs()
{
	umount "$mnt" 2>/dev/null || :
	"$RANKFS" "$@" "$source" "$mnt"
}

# list DIRECTORY RANKS: lines for load.c, the parts of each rank in order.
list()
{
	local rank
	for ((rank = 0; rank < $2; rank++)); do
		printf "$rank %s\n" $(ls -v "$1"/*-rank-$rank-part-*.safetensors)
	done
}

# compare LABEL METHOD RANKS: plain files against the mount, in $layout, by that many readers, each of its own rank.
compare()
{
	local speeds
	list "$plain" "$3" >"$work/plain.list"
	list "$mnt/vllm/$layout" "$3" >"$work/mount.list"
	speeds=$("$work/load" "$2" $rounds "$work/plain.list" "$work/mount.list")
	row "$1, $2, $layout, $3 rank(s)" "${speeds% *}" "${speeds#* }" "$(ratio $speeds)"
}

# A budget of four parts for each of RANKS readers: one that is read, two ahead, one to spare.
few_parts()
{
	stat -c %s "$plain"/*.safetensors | sort -n | tail -n 1 | awk -v ranks="$1" '{ printf "%dM", 4 * ranks * ($1 / 1048576 + 2) }'
}

remount()
{
	export BEFORE="umount $mnt; $RANKFS -o stage=off $source $mnt"
}

compare_layout()
{
	local method few ranks=$1
	layout=tp$2
	mkdir -p "$plain"
	"$RANKFS" export "$source" "vllm/$layout" "$plain" >/dev/null 2>&1
	few=$(few_parts "$ranks")
	for method in read mmap; do
		mount_rankfs -o stage="$few"
		compare "first touch, staged" $method "$ranks"
		mount_rankfs -o stage=64G
		compare "warm, staged" $method "$ranks"
		mount_rankfs -o stage=off
		compare "warm, streamed" $method "$ranks"
		remount
		compare "first touch, streamed" $method "$ranks"
		unset BEFORE
	done
	rm -rf "$plain"
}

# seconds COMMAND…: the median of three runs.
seconds()
{
	for _ in 1 2 3; do "$work/cost" "$@"; done | sort -n | sed -n '2s/ .*//p'
}

machine()
{
	echo "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors," \
		"$(awk '/^MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), Linux $(uname -r)," \
		"$("$RANKFS" --version), load $(cut -d' ' -f1 /proc/loadavg)"
}

compare_limit()
{
	local run speeds
	mount -t tmpfs -o huge=always,size=1G tmpfs "$work/slots" 2>/dev/null || return 0
	cat "$source"/*.safetensors >"$work/whole"
	for run in 8192 4096 1024; do
		speeds=$("$work/limit" "$work/whole" "$work/slots" $run 8192)
		row "limit: $run bytes of each 8192" "${speeds% *}" "${speeds#* }" "$(ratio $speeds)"
	done
	rm "$work/whole"
	umount "$work/slots"
}

compare_copies()
{
	local a b
	mkdir -p "$plain"
	"$RANKFS" export "$source" vllm/tp1 "$plain" >/dev/null 2>&1
	a=$(seconds bash -c "rm -rf $work/copy && cp -r $plain $work/copy")
	b=$(seconds bash -c "rm -rf $work/copy && $RANKFS export $source vllm/tp1 $work/copy 2>/dev/null")
	row "rankfs export, to cp -r (s)" "$a" "$b" "$(ratio "$b" "$a")"
	rm -rf "$work/copy"
	a=$(seconds bash -c "cat $plain/*.safetensors | wc -c")
	b=$(seconds bash -c "for f in $(cd "$plain" && echo *.safetensors); do $RANKFS cat $source vllm/tp1/\$f; done | wc -c")
	row "rankfs cat | wc -c, to cat | wc -c (s)" "$a" "$b" "$(ratio "$b" "$a")"
	rm -rf "$plain"
}

compare_safetensors()
{
	"$PYTHON" -c 'import safetensors.torch' 2>/dev/null || return 0
	local a b files
	mkdir -p "$plain"
	"$RANKFS" export "$source" vllm/tp1 "$plain" >/dev/null 2>&1
	mount_rankfs -o stage="$(few_parts 1)"
	files='import sys, glob, safetensors.torch as s
for path in sorted(glob.glob(sys.argv[1] + "/*.safetensors")): s.load_file(path)'
	a=$(seconds "$PYTHON" -c "$files" "$plain")
	b=$(seconds "$PYTHON" -c "$files" "$mnt/vllm/tp1")
	row "safetensors.torch.load_file (s)" "$a" "$b" "$(ratio "$b" "$a")"
	rm -rf "$plain"
}

# cost_row LABEL COMMAND…: the median of seven runs by time, as "SECONDS MIB".
cost_row()
{
	row "$1 (s, MiB)" $(for _ in 1 2 3 4 5 6 7; do "$work/cost" "${@:2}"; done | sort -n | sed -n 4p) -
}

# Costs without a plain file to compare with. A file of one rank is found when all ranks are planned. The first of two that
# use the cache fills it.
plan_costs()
{
	local model file=vllm/tp8/model-rank-0-part-1.safetensors
	checkpoint 405b llama-3.1-405b
	checkpoint many qwen3-235b-a22b --layers 256
	checkpoint dsv3 deepseek-v3
	checkpoint k3 kimi-k3
	cost_row "llama-3.1-405b: open, plan 8 ranks" "$RANKFS" plan "$cache/405b" $file -o nocache
	for model in "many 100,000 tensors" "dsv3 deepseek-v3, 91,991 tensors" "k3 kimi-k3, 497,220 tensors"; do
		cost_row "${model#* }: open" "$RANKFS" check "$cache/${model%% *}" -o nocache
		cost_row "${model#* }: open, plan 8 ranks" "$RANKFS" cat "$cache/${model%% *}" vllm/tp8/config.json -o nocache
		"$RANKFS" check "$cache/${model%% *}" >/dev/null
		cost_row "${model#* }: the same from the cache" "$RANKFS" cat "$cache/${model%% *}" vllm/tp8/config.json
	done
	cost_row "${model#* }: open, plan 16 ranks" "$RANKFS" cat "$cache/k3" vllm/tp16/config.json -o nocache
}

source=$cache/$name
checkpoint "$name" llama-3.1-8b "${shape[@]}" --shard-bytes 1000000000
cat "$source"/*.safetensors >/dev/null

echo "$(machine); $(du -h --apparent-size "$source" | cut -f1) of llama-3.1-8b's shape"
echo
row "" "plain" "rankfs" "ratio"
row "---" "---" "---" "---"
compare_limit
for pair in $layouts; do compare_layout "${pair#*x}" "${pair%x*}"; done
compare_copies
compare_safetensors
plan_costs
