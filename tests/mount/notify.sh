#!/bin/bash
# The service manager is told when the mount can be used, over sockets with and without a place in the file system.
. "$(dirname "$0")/lib.sh"
model llama-3.1-8b
"$PYTHON" - "$RANKFS" "$source" "$mnt" "$work/socket" <<'END' || fail "was not told"
import os, socket, subprocess, sys
rankfs, source, mnt, path = sys.argv[1:]
for name in (path, "\0" + path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(10)
        daemon = subprocess.Popen([rankfs, "-f", source, mnt], env=os.environ | {"NOTIFY_SOCKET": name.replace("\0", "@")})
        assert manager.recv(100) == b"READY=1"
        assert os.path.exists(mnt + "/README.txt"), "told too early"
        daemon.terminate()
        assert daemon.wait(10) == 0
END
