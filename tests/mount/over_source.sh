#!/bin/bash
# The mount point may be the source itself or be above it; within it is refused.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
cp -r "$source" "$work/plain"
mkdir "$source/more"
echo text >"$source/more/notes.txt"
cp -r "$source/more" "$work/plain"

"$RANKFS" "$source" "$source"
diff -r "$work/plain" "$source/source" || fail "source/ differs below a mount over the source"
unmount "$source"

mkdir -p "$work/above"
mv "$source" "$work/above/model"
"$RANKFS" "$work/above/model" "$work/above"
diff -r "$work/plain" "$work/above/source" || fail "source/ differs below a mount above the source"
test -s "$work/above/vllm/tp2/config.json"
unmount "$work/above"

fails 32 'inside the source' "$RANKFS" "$work/above/model" "$work/above/model/more"
is_mounted "$work/above/model/more" && fail "mounted all the same"
(cd "$work/above" && "$RANKFS" model ../mnt)
diff -r "$work/plain" "$mnt/source" || fail "source/ differs with relative paths"
