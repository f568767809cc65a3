#!/bin/bash
# A directory of 20,000 files: complete, without doubles, and the same from every offset.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
mkdir "$source/many"
(cd "$source/many" && seq -f 'a-rather-long-name-of-a-file-%.0f.txt' 20000 | xargs touch)
mount_rankfs
"$PYTHON" "$here/reads.py" listed "$mnt/source/many" "$source/many"
"$PYTHON" "$here/reads.py" listed "$mnt/source" "$source"
[ "$(find "$mnt/source/many" -type f | wc -l)" -eq 20000 ] || fail "find sees another number"
