#!/bin/bash
# bench.sh [--quick] [SECTION…] - what the mount costs beside plain files: a table, for BENCHMARKS.md. Sections are limit, layouts,
# kernel, first, headers, copies, costs, cold, libraries, vllm and plans; without any all of them, or where it is to be quick (two
# minutes) limit, layouts, first, headers, copies and costs.
#
# Each speed stands beside that of plain files with the same bytes (`rankfs export`), read in turn with them in the same
# run: medians, after a round to warm up, everything in the page cache. Only the ratio means something on another machine,
# and only on a quiet one. Checkpoints are made once, in $RANKFS_BENCH (default ~/.cache/rankfs-bench).
#
#   first touch   staged in memory for four parts a reader, so that all but one are made anew in each round
#   warm          all of it has been staged before
#   streaming     -o stage=off: through FUSE and its page cache
#   limit         the two copies that staging makes, without FUSE (tests/bench/limit.c)
#   cold          nothing of the source is cached; beside it stands the source itself, read by one reader: a disk below a
#                 virtual machine may have cached what was written last, so exported files are no fair neighbour
#   vLLM, …       where they are installed: in RANKFS_ENGINES (tests/engines/install.sh), else for PYTHON
set -eu
cd "$(dirname "$0")/.."

RANKFS=${RANKFS:-$PWD/build/release/rankfs}
PYTHON=${PYTHON:-python3}
CC=${CC:-cc}
cache=${RANKFS_BENCH:-${XDG_CACHE_HOME:-$HOME/.cache}/rankfs-bench}
engines=${RANKFS_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/rankfs-engines}/bin/python
[ -x "$engines" ] || engines=$PYTHON
rounds=5
name=full
layouts='1x1 2x1 8x1 2x2 8x8' # ranks of a layout x those that load at once
shape=(--layers 16 --hidden 3072 --heads 24 --kv-heads 8 --inter 8192 --vocab 32768)
if [ "${1:-}" = --quick ]; then
	rounds=3
	name=quick
	layouts='1x1 8x8'
	shape=(--layers 10 --hidden 2048 --heads 16 --kv-heads 8 --inter 8192 --vocab 16384)
	shift
fi
all="limit layouts first headers copies costs"
[ "$name" = quick ] || all+=" kernel cold libraries vllm plans"
sections=" ${*:-$all} "

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

for tool in noise load limit cost first; do
	$CC -O2 -std=gnu11 -D_GNU_SOURCE -o "$work/$tool" tests/bench/$tool.c -pthread
done

# checkpoint NAME FAMILY FLAG…: sparse, in $cache/NAME.
checkpoint()
{
	local dir=$cache/$1
	[ -e "$dir/done" ] && return
	rm -rf "$dir"
	"$PYTHON" tests/zoo/gen.py "$2" "$dir" "${@:3}" >/dev/null
	case $1 in full | quick | vllm) "$work/noise" "$dir"/*.safetensors ;; esac
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

# before COMMAND…: what is run before each list is read. Functions get lost on their way through other shells.
before()
{
	{
		declare -f evict take_memory
		echo "work=$work; umount $mnt; $*"
	} >"$work/before"
	export BEFORE="bash $work/before"
}

remount()
{
	local take=take_memory
	[ "$name" != quick ] || take=:
	before "$take; $RANKFS -o stage=off $source $mnt"
}

# What the kernel has cached of files is dropped.
evict()
{
	local file
	for file in "$@"; do dd if="$file" iflag=nocache count=0 status=none; done
}

# They are in the page cache as a reader leaves them.
cache()
{
	sync "$@"
	evict "$@"
	cat "$@" >/dev/null
}

# Memory that nothing has used for a while is slow to touch in a virtual machine, ten times slower than its copying: the page cache
# takes it with the zeros of a file without blocks, other ones each time, and gives it back as it would on a machine in use.
take_memory()
{
	local free=$(($(sed -n 's/^MemFree: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 - 1024)) taken
	[ "$free" -gt 0 ] || return 0
	truncate -s 8T "$work/holes"
	taken=$(cat "$work/taken" 2>/dev/null || echo 0)
	dd if="$work/holes" of=/dev/null bs=1M skip="$taken" count=$free status=none
	echo $((taken + free)) >"$work/taken"
}

compare_layout()
{
	local method few ranks=$1
	layout=tp$2
	mkdir -p "$plain"
	"$RANKFS" export "$source" "vllm/$layout" "$plain" >/dev/null 2>&1
	cache "$plain"/*.safetensors
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

# What is computed for kernels: one scale for the FP8 codes of fused matrices, beside files that were converted before.
compare_kernel()
{
	local method speeds few source=$cache/fp8
	checkpoint fp8 llama-3.1-8b-fp8 --layers 6 --vocab 4096 --fill
	mkdir -p "$plain"
	"$RANKFS" export "$source" kernel/tp1/rank-0 "$plain" >/dev/null 2>&1
	cache "$source"/*.safetensors "$plain"/*.safetensors
	few=$(few_parts 1)
	for method in read mmap; do
		mount_rankfs -o stage="$few"
		printf '0 %s\n' $(ls -v "$plain"/*.safetensors) >"$work/plain.list"
		printf '0 %s\n' $(ls -v "$mnt"/kernel/tp1/rank-0/*.safetensors) >"$work/mount.list"
		speeds=$("$work/load" $method $rounds "$work/plain.list" "$work/mount.list")
		row "first touch, staged, $method, kernel/tp1, FP8" "${speeds% *}" "${speeds#* }" "$(ratio $speeds)"
	done
	rm -rf "$plain"
}

# seconds COMMAND…: the median of three runs.
seconds()
{
	local runs
	runs=$(for _ in 1 2 3; do "$work/cost" "$@" || exit; done)
	sort -n <<<"$runs" | sed -n '2s/ .*//p'
}

# list_both RANKS: the source by one reader, and the mount.
list_both()
{
	printf '0 %s\n' "$source"/*.safetensors >"$work/plain.list"
	list "$mnt/vllm/$layout" "$1" >"$work/mount.list"
}

# Which of them comes first may find something cached below this machine: each does once.
compare_cold()
{
	local a b c d ranks=$1
	layout=tp$2
	before "evict $source/*.safetensors; take_memory; $RANKFS $source $mnt"
	mount_rankfs
	list_both "$ranks"
	read -r a b < <("$work/load" read 1 "$work/plain.list" "$work/mount.list")
	read -r c d < <("$work/load" read 1 "$work/mount.list" "$work/plain.list")
	unset BEFORE
	a=$(awk -v a="$a" -v d="$d" 'BEGIN { printf "%.3f", (a + d) / 2 }')
	b=$(awk -v b="$b" -v c="$c" 'BEGIN { printf "%.3f", (b + c) / 2 }')
	row "cold disk, read, $layout, $ranks rank(s)" "$a" "$b" "$(ratio "$a" "$b")"
}

# What a load costs its daemon: bytes from the disk and bytes made, staged or not, beside those of the source (MB), and
# memory that is no staged file (MiB). When a load ends, the first part of each rank is staged for the next one.
compare_costs()
{
	local pid ranks=$1 model made
	layout=tp$2
	umount "$mnt" 2>/dev/null || :
	evict "$source"/*.safetensors
	"$RANKFS" -f "$source" "$mnt" 2>/dev/null &
	pid=$!
	while ! test -e "$mnt/vllm/$layout"; do sleep 0.1; done
	list_both "$ranks"
	"$work/load" mmap 1 "$work/mount.list" >/dev/null
	model=$(cat "$source"/*.safetensors | wc -c | awk '{ printf "%.1f", $1 / 1e6 }')
	made=$(awk '/^rankfs_(staged|read)_bytes_total/ { sum += $NF } END { printf "%.1f", sum / 1e6 }' "$mnt/.rankfs/stats")
	set -- "$(awk '/^read_bytes/ { printf "%.1f", $2 / 1e6 }' /proc/$pid/io)" \
		"$(awk '/^Rss(Anon|File)/ { kib += $2 } END { printf "%.1f", kib / 1024 }' /proc/$pid/status)"
	row "from a cold disk, $layout, $ranks rank(s) (MB)" "$model" "$1" "$(ratio "$model" "$1")"
	row "from the page cache, $layout, $ranks rank(s) (MB)" "$model" "$made" "$(ratio "$model" "$made")"
	row "memory of the daemon but for staged files (MiB)" - "$2" -
	umount "$mnt"
	wait $pid
}

# The median open of a file, to its first byte (ms).
compare_first()
{
	local a b
	layout=tp1
	mkdir -p "$plain"
	"$RANKFS" export "$source" vllm/tp1 "$plain" >/dev/null 2>&1
	mount_rankfs -o stage=64G
	a=$("$work/first" read 1 "$plain"/*.safetensors)
	b=$("$work/first" read 1 "$mnt"/vllm/tp1/*.safetensors)
	row "open to first byte, not foreseen (ms)" "${a#* }" "${b#* }" -
	cat $(ls -v "$mnt"/vllm/tp1/*.safetensors) $(ls -v "$mnt"/vllm/tp1/*.safetensors) >/dev/null
	a=$("$work/first" read 1 "$plain"/*.safetensors)
	b=$("$work/first" read 1 "$mnt"/vllm/tp1/*.safetensors)
	row "open to first byte, staged (ms)" "${a#* }" "${b#* }" -
	rm -rf "$plain"
}

# As engines begin: the headers of all parts of all ranks of a large model.
header_costs()
{
	local method files
	checkpoint 405b llama-3.1-405b
	for method in read mmap; do
		umount "$mnt" 2>/dev/null || :
		"$RANKFS" "$cache/405b" "$mnt"
		files=$(find "$mnt/vllm/tp8" -name '*.safetensors')
		row "$(wc -w <<<"$files") headers of llama-3.1-405b tp8, $method (s, requests)" - \
			"$("$work/first" $method - $files | cut -d' ' -f1)" \
			"$(awk '/^rankfs_reads_total/ { n += $2 } END { print n }' "$mnt/.rankfs/stats")"
	done
	umount "$mnt"
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
	cache "$work/whole"
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

# engine HOW DIRECTORY…: seconds, the median of three runs ($runs), or why not.
engine()
{
	local i all=
	for ((i = 0; i < ${runs:-3}; i++)); do
		take_memory
		all+=$("$engines" tests/bench/engine.py "$@" 2>/dev/null | tail -n 1)$'\n'
	done
	[ "$(grep -c . <<<"$all")" -eq "${runs:-3}" ] || all=$(printf 'not run\n%.0s' {1..9})
	grep . <<<"$all" | sort -n | sed -n "$(((${runs:-3} + 1) / 2))p"
}

# engine_row LABEL: from $a and $b.
engine_row()
{
	case $a in
	not*) row "$1 (s)" - "$a" - ;;
	*) row "$1 (s)" "$a" "$b" "$(ratio "$b" "$a")" ;;
	esac
}

# The libraries that read files, on the exported files and on the mount, where all but a few parts are made anew.
compare_libraries()
{
	local a b how
	mkdir -p "$plain"
	"$RANKFS" export "$source" vllm/tp1 "$plain" >/dev/null 2>&1
	cache "$plain"/*.safetensors
	for how in safetensors fastsafetensors runai-model-streamer; do
		mount_rankfs -o stage="$(few_parts 1)"
		a=$(engine $how "$plain")
		b=$(engine $how "$mnt/vllm/tp1")
		engine_row "$how"
	done
	rm -rf "$plain"
}

# vLLM's own figure, of one start each: the loader that slices the source, exported files, and the mount, from a cold disk; then the
# first of them and the mount, twice, with the source in the page cache.
compare_vllm()
{
	local tp slices files cold first again runs=1 source=$cache/vllm
	checkpoint vllm llama-3.1-8b --layers 24 --hidden 3072 --heads 24 --kv-heads 8 --inter 8192 --vocab 32768 --shard-bytes 1000000000
	for tp in 1 2 4; do
		evict "$source"/*.safetensors
		slices=$(engine vllm "$source" $tp auto)
		if [[ $slices == not* ]]; then
			row "vLLM, loading weights (s)" - "$slices" -
			return
		fi
		mkdir -p "$plain"
		"$RANKFS" export "$source" vllm/tp$tp "$plain" >/dev/null 2>&1
		evict "$source"/*.safetensors "$plain"/*.safetensors
		files=$(engine vllm "$plain" $tp sharded_state)
		evict "$source"/*.safetensors "$plain"/*.safetensors
		mount_rankfs
		cold=$(engine vllm "$mnt/vllm/tp$tp" $tp sharded_state)
		a=$slices b=$cold engine_row "vLLM, tp$tp, cold disk: default loader, mount"
		a=$files b=$cold engine_row "vLLM, tp$tp, cold disk: exported files, mount"
		rm -rf "$plain"
		cache "$source"/*.safetensors
		slices=$(engine vllm "$source" $tp auto)
		mount_rankfs
		first=$(engine vllm "$mnt/vllm/tp$tp" $tp sharded_state)
		again=$(engine vllm "$mnt/vllm/tp$tp" $tp sharded_state)
		a=$slices b=$first engine_row "vLLM, tp$tp, page cache: default loader, mount"
		a=$slices b=$again engine_row "vLLM, tp$tp, page cache: default loader, mount again"
	done
}

# cost_row LABEL COMMAND…: the median of seven runs by processor time, as "SECONDS MIB".
cost_row()
{
	local runs
	runs=$(for _ in 1 2 3 4 5 6 7; do "$work/cost" -c "${@:2}" || exit; done)
	row "$1 (CPU s, MiB)" $(sort -n <<<"$runs" | sed -n 4p) -
}

# Costs without a plain file to compare with. A file of the source is found when all headers are read, one of a rank when
# all ranks are planned. 100,000 tensors, 91,991 and 497,220: the cache is filled before it is used.
plan_costs()
{
	local model file=vllm/tp8/model-rank-0-part-1.safetensors
	checkpoint 405b llama-3.1-405b
	checkpoint many qwen3-235b-a22b --layers 256
	checkpoint dsv3 deepseek-v3
	checkpoint k3 kimi-k3
	cost_row "llama-3.1-405b: open, plan 8 ranks" "$RANKFS" plan "$cache/405b" $file -o nocache
	for model in "many qwen3-moe of 256 layers" "dsv3 deepseek-v3" "k3 kimi-k3"; do
		cost_row "${model#* }: open" "$RANKFS" cat "$cache/${model%% *}" source/config.json -o nocache
		cost_row "${model#* }: open, plan 8 ranks" "$RANKFS" cat "$cache/${model%% *}" vllm/tp8/config.json -o nocache
		"$RANKFS" cat "$cache/${model%% *}" source/config.json >/dev/null
		cost_row "${model#* }: from the cache" "$RANKFS" cat "$cache/${model%% *}" vllm/tp8/config.json
	done
	cost_row "${model#* }: open, plan 16 ranks" "$RANKFS" cat "$cache/k3" vllm/tp16/config.json -o nocache
}

# section NAME COMMAND…: if it is asked for.
section()
{
	if [[ $sections == *" $1 "* ]]; then "${@:2}"; fi
}

source=$cache/$name
checkpoint "$name" llama-3.1-8b "${shape[@]}" --shard-bytes 1000000000
cache "$source"/*.safetensors

echo "$(machine); $(du -h --apparent-size "$source" | cut -f1) of llama-3.1-8b's shape"
echo
row "" "plain" "rankfs" "ratio"
row "---" "---" "---" "---"
section limit compare_limit
for pair in $layouts; do section layouts compare_layout "${pair#*x}" "${pair%x*}"; done
section kernel compare_kernel
section first compare_first
section headers header_costs
section copies compare_copies
section costs compare_costs 8 8
for pair in 1x1 8x8; do section cold compare_cold "${pair#*x}" "${pair%x*}"; done
section libraries compare_libraries
section vllm compare_vllm
section plans plan_costs
