#!/bin/bash
# A reader that stops in the middle of its load keeps what it has open, and no more of the memory than that.
. "$(dirname "$0")/lib.sh"
mount_staged -o stage=24M
"$PYTHON" - $(ls -v "$mnt"/vllm/tp2/*-rank-0-*.safetensors) <<'END' &
import sys, time
open(sys.argv[1], "rb").read()
stopped = open(sys.argv[2], "rb")
stopped.read(1000)
time.sleep(60)
END
stopped=$!
sleep 1
for _ in 1 2; do cat $(ls -v "$mnt"/vllm/tp2/*-rank-1-*.safetensors) >/dev/null; done
kill $stopped
sed -n 's/^rankfs_passed_opens_total{directory="vllm.tp2",rank="1".*} //p' "$mnt/.rankfs/stats" >"$work/passed"
[ "$(cat "$work/passed")" -ge 8 ] || fail "the other rank was passed $(cat "$work/passed") files"
