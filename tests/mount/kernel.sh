#!/bin/bash
# What is computed for kernels is the same whichever way it is read, staged or not; what has no certain result is an error of that
# file, and the next one is served.
. "$(dirname "$0")/lib.sh"

# family "FAMILY ARGUMENT…" DIRECTORY…: each of its weight files, in every way.
family()
{
	local directory file how
	rm -rf "$source"
	# shellcheck disable=SC2086 # the arguments are several words
	"$PYTHON" "$root/tests/zoo/gen.py" $1 "$source" --tiny --fill >/dev/null
	for options in stage=64M stage=off; do
		mount_rankfs -o $options
		for directory in "${@:2}"; do
			for file in $(cd "$mnt" && ls "$directory"/*.safetensors | sed -n '1p;2p;$p'); do
				"$RANKFS" cat "$source" "$file" >"$work/ref"
				for how in at_random in_order mapped direct by_many; do
					"$PYTHON" "$here/reads.py" $how "$mnt/$file" "$work/ref" || fail "$1 $file, $options: $how"
				done
			done
		done
		unmount "$mnt"
	done
}

family llama-3.1-8b-fp8 kernel/tp2/rank-1 kernel/tp2-kn/rank-0 kernel/tp2-marlin/rank-1
family qwen2.5-7b-instruct-gptq-int4 kernel/tp2-marlin/rank-1 sglang/tp1
family 'qwen3-30b-a3b --experts 16' kernel/tp2-fp8c/rank-1 kernel/tp2-sm100/rank-0
family deepseek-v3 kernel/tp2-triton/rank-1
family kimi-k2.5 kernel/tp2/rank-1

# scale_of_0 FAMILY DIRECTORY…: a scale that is not positive, said with its module, before a byte of what depends on it.
scale_of_0()
{
	local directory files said
	rm -rf "$source"
	"$PYTHON" "$root/tests/zoo/gen.py" "$1" "$source" --tiny --fill >/dev/null
	"$PYTHON" - "$source"/*.safetensors <<-'END'
		import json, struct, sys
		name = "model.layers.1.self_attn.k_proj.weight_scale"
		for path in sys.argv[1:]:
		    with open(path, "r+b") as f:
		        n = struct.unpack("<Q", f.read(8))[0]
		        entry = json.loads(f.read(n)).get(name)
		        if entry:
		            f.seek(8 + n + entry["data_offsets"][0])
		            f.write(b"\0" * (entry["data_offsets"][1] - entry["data_offsets"][0]))
	END
	mount_rankfs
	for directory in "${@:2}"; do
		files=("$mnt/$directory"/rank-0/*.safetensors)
		cat "${files[1]}" >/dev/null || fail "$1 $directory: a layer with good scales cannot be read"
		cat "${files[2]}" >/dev/null 2>&1 && fail "$1 $directory: a layer with a scale of 0 is served"
		cat "${files[3]}" >/dev/null || fail "$1 $directory: the layer behind it cannot be read"
		said=$("$RANKFS" cat "$source" "$directory/rank-0/${files[2]##*/}" 2>&1 >/dev/null) && fail "$1 $directory: cat gives it"
		[[ $said == *layers.1.self_attn.qkv_proj.*"a scale is 0"* ]] || fail "$1 $directory: $said"
	done
	unmount "$mnt"
}

scale_of_0 llama-3.1-8b-fp8 kernel/tp1 kernel/tp1-marlin
scale_of_0 llama-3.1-8b-fp8-dynamic kernel/tp1 kernel/tp1-marlin kernel/tp1-sm80
