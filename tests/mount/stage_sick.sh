#!/bin/bash
# The source fails while parts are made of it, or does not answer: an error for those who read them, after another try, and for
# nobody else; once it is well again the bytes are right. The source is a mount of its own, which is sick when the file below it
# has another time, and does not answer when its daemon is stopped.
. "$(dirname "$0")/lib.sh"
[[ ${RANKFS_TEST_OPTIONS:-} != *stage=* ]] || skip "$RANKFS_TEST_OPTIONS"
model_of_parts "$work/below"
mkdir "$work/under"
"$RANKFS" -f -o nopassthrough "$work/below" "$work/under" 2>"$work/under.log" &
below=$!
trap 'kill -CONT $below 2>/dev/null; cleanup' EXIT
wait_for test -e "$work/under/hf/tp1/rank-0/config.json"
source=$work/under/hf/tp1/rank-0
serve_rankfs -o stage=40M
grep -q '^staging: no' "$mnt/.rankfs/status" && skip "$(grep '^staging' "$mnt/.rankfs/status")"
for layout in vllm/tp1 vllm/tp2; do "$RANKFS" export "$work/below" $layout "$work/ref/$layout" >/dev/null 2>&1; done

"$PYTHON" "$here/sick.py" $below "$work/below/model.safetensors" "$source" "$mnt" "$work/ref" ||
	fail "see above; the log: $(cat "$work/log")"
kill -0 "$pid" || fail "the daemon has died: $(cat "$work/log")"
grep -q 'staging model-rank-0-part-.*cannot be read' "$work/log" || fail "nothing is said of it: $(cat "$work/log")"
[ "$(stage_figure staged_files_total)" -ge 4 ] || fail "only $(stage_figure staged_files_total) files were staged afterwards"
[ "$(stage_figure stage_used_bytes)" -le $((40 << 20)) ] || fail "$(stage_figure stage_used_bytes) bytes of 40 MiB used"
