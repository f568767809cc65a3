#!/bin/bash
# A part that is still mapped, though closed, keeps its bytes while its memory is wanted for all the others.
. "$(dirname "$0")/lib.sh"
mount_staged -o stage=40M
"$RANKFS" export "$source" vllm/tp1 "$work/ref" >/dev/null 2>&1
"$PYTHON" - "$work/ref" $(ls -v "$mnt"/vllm/tp1/*.safetensors) <<'END' || fail "a mapped part has changed"
import mmap, os, sys
reference, *files = sys.argv[1:]
def load(path):
    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    with open(os.path.join(reference, os.path.basename(path)), "rb") as file:
        assert view[:] == file.read(), path
    return view
load(files[0])
held = [load(files[1]), load(files[2])]
before = [view[:] for view in held]
for _ in range(3):
    for path in files[3:]:
        load(path)
sys.exit([view[:] for view in held] != before)
END
[ "$(stage_figure staged_files_total)" -ge 12 ] || fail "only $(stage_figure staged_files_total) files were staged"
