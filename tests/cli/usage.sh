#!/bin/bash
# What is no command, no flag, too much or too little: exit 1, one line. Help is no error. (B173)
. "$(dirname "$0")/lib.sh"

prints "usage: rankfs SOURCE MOUNTPOINT" "$RANKFS" --help
prints "bytes per rank" "$RANKFS" help
prints "^usage: rankfs plan SOURCE" "$RANKFS" help plan
prints "^usage: rankfs export SOURCE PATH DEST" "$RANKFS" export --help
prints "^usage: rankfs SOURCE MOUNTPOINT" "$RANKFS" help mount
prints "^rankfs " "$RANKFS" --version
prints "^rankfs " "$RANKFS" -V

code=0
"$RANKFS" >"$work/out" 2>"$work/err" || code=$?
[ $code -eq 1 ] && [ ! -s "$work/out" ] && grep -q "^usage:" "$work/err" || fail "rankfs alone: exit $code"

fails 1 "'x' is no command" "$RANKFS" help x
fails 1 "an argument is missing" "$RANKFS" plan
fails 1 "an argument is missing" "$RANKFS" cat a
fails 1 "an argument is missing" "$RANKFS" export a b
fails 1 "'c' is one argument too many" "$RANKFS" plan a b c
fails 1 "'b' is one argument too many" "$RANKFS" sizes a b
fails 1 "'a' is one argument too many" "$RANKFS" list a
fails 1 "no such flag" "$RANKFS" plan a --force
fails 1 "no such flag" "$RANKFS" cat a b --json
fails 1 "no such flag" "$RANKFS" sizes a --nonsense
fails 1 "wants an argument" "$RANKFS" plan a -o
fails 1 "a number from 1 to" "$RANKFS" export a b c -j 0
fails 1 "a number from 1 to" "$RANKFS" export a b c --jobs=x
fails 1 "'nonsense'" "$RANKFS" plan a -o nonsense
for command in plan sizes check; do
	fails 32 "no such directory" "$RANKFS" $command "$work/nothing"
done
