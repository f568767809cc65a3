#!/bin/bash
# Files of the source are passed through: the kernel reads them, and the daemon sees no request; O_DIRECT of any length works.
. "$(dirname "$0")/lib.sh"
mount_staged
cmp "$source/model.safetensors" "$mnt/source/model.safetensors"
cmp "$source/config.json" "$mnt/source/config.json"
[ "$(sed -n 's/^rankfs_reads_total{directory="source"} //p' "$mnt/.rankfs/stats")" -eq 0 ] || fail "requests came"
"$PYTHON" "$here/reads.py" direct "$mnt/source/model.safetensors" "$source/model.safetensors"
"$PYTHON" - "$mnt"/vllm/tp1/*-part-[01].safetensors <<'END' || fail "O_DIRECT of a staged part"
import os, sys
open(sys.argv[1], "rb").read()
whole = open(sys.argv[2], "rb").read()
fd = os.open(sys.argv[2], os.O_RDONLY | os.O_DIRECT)
sys.exit(b"".join(iter(lambda: os.read(fd, 1000003), b"")) != whole)
END
