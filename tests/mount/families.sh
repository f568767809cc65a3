#!/bin/bash
# Every family of the zoo in full size, its data a hole: it mounts, and its largest layout opens in vllm/, hf/ and tensors/ with
# a sane header; or it is refused in one sentence that says why. In small, every layout that a listing shows opens.
. "$(dirname "$0")/lib.sh"

# Those that are refused, and what the sentence says. To add one: a line.
refusals='
llama-3.1-8b-bnb-int8          quantisation .bitsandbytes. .* is refused: its packing is no slice of a matrix
minimax-m1                     MiniMaxM1ForCausalLM is refused: vLLM has not had it since 0.24
qwen-7b-chat-int4              QWenLMHeadModel is refused: vLLM has not had it since 0.24
qwen2.5-7b-gptq-int4-desc-act  desc_act true and groups (act-order) is refused
'

case $RANKFS in */asan/*) skip "two minutes without the sanitizers, too many with them" ;; esac

# A family in $source, mounted.
mount_family()
{
	rm -rf "$source"
	"$PYTHON" "$root/tests/zoo/gen.py" "$1" "$source" "${@:2}" >/dev/null || skip "no sparse files here"
	mount_rankfs
}

# The first weight file below a directory begins with the length of a header that lies in it.
sane()
{
	local file length
	file=$(find "$1" -name '*.safetensors' | sort -V | head -n 1)
	test -n "$file" || fail "$family: no weights in $1"
	length=$(od -An -tu8 -N8 "$file" | tr -d ' ')
	[ "$length" -gt 2 ] && [ "$length" -lt "$(stat -c %s "$file")" ] || fail "$family: $file has a header of $length bytes"
	[ "$(head -c 10 "$file" | tail -c 2)" = '{"' ] || fail "$family: $file has no header"
}

full_size()
{
	local engine layout
	mount_family "$family"
	for engine in vllm hf tensors; do
		layout=$(find "$mnt/$engine" -maxdepth 1 -name 'tp*' -printf '%f\n' | grep -E '^tp[0-9]+$' | sort -V | tail -n 1)
		test -n "$layout" || fail "$family: no layout in $engine"
		case $engine in
		tensors) ls "$mnt/tensors/$layout/rank-0/" >/dev/null || fail "$family: tensors/$layout does not open" ;;
		*) sane "$mnt/$engine/$layout" ;;
		esac
	done
	unmount "$mnt"
}

every_layout()
{
	local layout
	mount_family "$family" --tiny
	for layout in "$mnt"/vllm/tp* "$mnt"/{hf,tensors}/tp*/*rank-0; do
		ls "$layout" >/dev/null || fail "$family: ${layout#"$mnt"/} is listed and does not open"
	done
	unmount "$mnt"
}

for family in $("$PYTHON" "$root/tests/zoo/gen.py" --list); do
	refusal=$(echo "$refusals" | sed -n "s/^$family  *//p")
	if test -n "$refusal"; then
		"$PYTHON" "$root/tests/zoo/gen.py" "$family" "$source" >/dev/null
		fails 32 "$refusal" mount_rankfs
		rm -rf "$source"
	else
		full_size
		every_layout
	fi
done
