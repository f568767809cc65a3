#!/bin/bash
# SIGTERM, SIGINT and SIGHUP unmount and end with 0, idle, with a file open, and while it is read. (B172)
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
set -m # or the shell has background jobs ignore SIGINT
for signal in TERM INT HUP; do
	serve_rankfs
	exec 5<"$mnt/source/config.json"
	while cat "$mnt"/source/*.safetensors 2>/dev/null; do :; done >/dev/null &
	reader=$!
	sleep 0.2
	kill -$signal "$pid"
	wait "$pid" || fail "exit $? after SIG$signal: $(cat "$work/log")"
	is_mounted "$mnt" && fail "still mounted after SIG$signal"
	wait $reader || :
	exec 5<&-
done
