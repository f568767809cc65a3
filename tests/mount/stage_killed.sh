#!/bin/bash
# The daemon is killed: who has a staged part open or mapped keeps it; nothing is left behind, and mounting again works.
. "$(dirname "$0")/lib.sh"
mount_staged -o stage=64M
"$RANKFS" export "$source" vllm/tp1 "$work/ref" >/dev/null 2>&1
before=$(grep -c tmpfs /proc/self/mountinfo)
kill_and_look()
{
	"$PYTHON" - "$pid" "$work/ref" $(ls -v "$mnt"/vllm/tp1/*.safetensors) <<'END'
import mmap, os, signal, sys, time
daemon, reference, *files = sys.argv[1:]
open(files[0], "rb").read()
with open(files[1], "rb") as file:
    view = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)
fd = os.open(files[2], os.O_RDONLY)
os.kill(int(daemon), signal.SIGKILL)
time.sleep(0.2)
name = lambda path: os.path.join(reference, os.path.basename(path))
assert view[:] == open(name(files[1]), "rb").read()
assert os.pread(fd, 1 << 30, 0) == open(name(files[2]), "rb").read()
END
}
kill_and_look || fail "what was open is lost"
wait "$pid" 2>/dev/null || :
[ "$(grep -c tmpfs /proc/self/mountinfo)" -eq "$before" ] || fail "a tmpfs is left behind"
unmount "$mnt"
serve_rankfs -o stage=64M
same_as_cat vllm/tp1
unmount "$mnt"
wait "$pid" || fail "the daemon ended with $?"
[ "$(grep -c tmpfs /proc/self/mountinfo)" -eq "$before" ] || fail "a tmpfs is left behind by one that ended by itself"
