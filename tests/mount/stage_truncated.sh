#!/bin/bash
# The source shrinks while it is loaded: an errno for the readers of what is gone, no wrong byte, and the daemon lives.
. "$(dirname "$0")/lib.sh"
mount_staged -o stage=32M
"$RANKFS" export "$source" vllm/tp1 "$work/ref" >/dev/null 2>&1
"$PYTHON" - "$source/model.safetensors" "$work/ref" $(ls -v "$mnt"/vllm/tp1/*.safetensors) <<'END' || fail "wrong bytes, or no error"
import errno, os, sys
source, reference, *files = sys.argv[1:]
failed = 0
for i, path in enumerate(files):
    if i == 3:
        os.truncate(source, os.path.getsize(source) // 3)
    size = os.path.getsize(path)
    try:
        got = open(path, "rb").read()
        assert got == open(os.path.join(reference, os.path.basename(path)), "rb").read(), path
    except OSError as error:
        assert error.errno in (errno.EIO, errno.ESTALE), error
        failed += 1
    assert os.path.getsize(path) == size, path
sys.exit(failed == 0)
END
kill -0 "$pid" || fail "the daemon has died: $(cat "$work/log")"
cmp -s "$source/config.json" "$mnt/source/config.json" || fail "the rest is not served any more"
