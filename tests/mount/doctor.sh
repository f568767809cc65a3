#!/bin/bash
# The doctor finds what the mounts of the other tests need; each "no" comes with advice.
. "$(dirname "$0")/lib.sh"
"$RANKFS" doctor >"$work/out" || fail "exit $?: $(cat "$work/out")"
grep -q '^device  *yes' "$work/out" || fail "$(cat "$work/out")"
[ "$(grep -c ' no  ' "$work/out")" -eq "$(grep -c -- '->' "$work/out")" ] || fail "a no without advice: $(cat "$work/out")"
"$RANKFS" doctor --json | "$PYTHON" -c '
import json, sys
for check in json.load(sys.stdin):
    assert check["answer"] != "no" or check["advice"], check
' || fail "--json is wrong"
fails 1 'only --json' "$RANKFS" doctor --all
