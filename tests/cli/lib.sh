# shellcheck shell=bash
# lib.sh - for the tests of this directory: a temporary directory, small checkpoints in it. Nothing is mounted.
#
#     . "$(dirname "$0")/lib.sh"
#     model llama-3.1-8b                     # a checkpoint in $source
#     prints "^vllm/tp2 .*ok" "$RANKFS" plan "$source"
#     fails 32 "no layout" "$RANKFS" plan "$source" vllm/x
#
# RANKFS is the program, PYTHON the interpreter. A test that cannot run here says why and exits with 77.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
RANKFS=${RANKFS:-$root/build/release/rankfs}
PYTHON=${PYTHON:-python3}
unset NO_COLOR

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

test -x "$RANKFS" || skip "no $RANKFS: build it first"

work=$(mktemp -d)
source=$work/model
export XDG_CACHE_HOME=$work/cache # not the user's own
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# model FAMILY [FLAG…]: a small filled checkpoint in $source.
model()
{
	rm -rf "$source"
	"$PYTHON" "$root/tests/zoo/gen.py" "$1" "$source" --tiny --fill "${@:2}" >/dev/null
}

# prints PATTERN COMMAND…: it succeeds, says nothing on stderr, and a line of its output has the pattern.
prints()
{
	local pattern=$1
	shift
	"$@" >"$work/out" 2>"$work/err" || fail "exit $?: $*: $(cat "$work/err")"
	[ ! -s "$work/err" ] || fail "$*: says $(cat "$work/err")"
	grep -q -e "$pattern" "$work/out" || fail "$*: no '$pattern' in: $(head -n 40 "$work/out")"
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

# json FILE EXPRESSION: a Python expression over the document `d` is true.
json()
{
	"$PYTHON" -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not eval(sys.argv[2]))' "$1" "$2" ||
		fail "$1: not $2"
}
