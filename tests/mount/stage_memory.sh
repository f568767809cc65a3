#!/bin/bash
# A budget above the memory limit of the daemon's control group: it takes what there is, and is not killed.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" -eq 0 ] || skip "needs root"
if [ -w /sys/fs/cgroup/memory/cgroup.procs ]; then
	group=/sys/fs/cgroup/memory/rankfs-$$ limit=memory.limit_in_bytes
elif grep -qw memory /sys/fs/cgroup/cgroup.subtree_control 2>/dev/null; then
	group=/sys/fs/cgroup/rankfs-$$ limit=memory.max
else
	skip "no control groups of memory"
fi
mkdir "$group" || skip "no control group can be made"
trap 'cleanup; sleep 0.2; rmdir "$group"' EXIT
echo $((128 << 20)) >"$group/$limit"
printf '#!/bin/sh\necho $$ >%s/cgroup.procs\nexec %s "$@"\n' "$group" "$RANKFS" >"$work/limited"
chmod +x "$work/limited"
rankfs=$RANKFS RANKFS=$work/limited
mount_staged -o stage=1G
RANKFS=$rankfs
for _ in 1 2; do same_as_cat vllm/tp1; done
kill -0 "$pid" || fail "the daemon was killed"
[ "$(stage_figure staged_files_total)" -gt 0 ] || fail "nothing was staged"
[ "$(stage_figure stage_used_bytes)" -le $((100 << 20)) ] || fail "$(stage_figure stage_used_bytes) bytes of a limit of 128 MiB"
