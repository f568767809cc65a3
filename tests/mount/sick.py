#!/usr/bin/env python3
"""sick.py DAEMON WEIGHTS SOURCE MOUNT REFERENCE - for stage_sick.sh: load ranks of MOUNT while DAEMON, which serves their SOURCE
from WEIGHTS, fails or does not answer; compare them with the same files below REFERENCE."""
import errno
import glob
import os
import signal
import sys
import threading
import time
import traceback

daemon, weights, source, mount, reference = sys.argv[1:]
times = os.stat(weights)


def is_sick(sick):
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns + sick))


def answers(yes):
    os.kill(int(daemon), signal.SIGCONT if yes else signal.SIGSTOP)


def forget_source():
    """What the kernel has cached of it needs no daemon."""
    for name in glob.glob(f"{source}/*.safetensors"):
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def figure(name):
    with open(f"{mount}/.rankfs/stats") as stats:
        return next(int(line.split()[1]) for line in stats if line.startswith(f"rankfs_{name} "))


def wait_for_quiet():
    """Until nothing is being staged."""
    before = None
    while before != (before := [figure(name) for name in ("staged_files_total", "stage_used_bytes")]):
        time.sleep(0.5)


def wait_for(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until, open(mount + "/.rankfs/status").read()
        time.sleep(0.01)


def attempt(action, results):
    """What it returns, or the errno."""
    try:
        results.append(action())
    except OSError as error:
        assert error.errno in (errno.EIO, errno.ESTALE), error
        results.append(error.errno)


def tried(action):
    results = []
    attempt(action, results)
    return results[0]


def beyond_header(path):
    """What makes its reader one who loads."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.pread(fd, 4096, 1 << 20)
    finally:
        os.close(fd)


def whole(path):
    with open(path, "rb") as file:
        return file.read()


def parts(layout, rank):
    names = os.listdir(f"{mount}/{layout}")
    own = [name for name in names if f"-rank-{rank}-" in name]
    return [f"{layout}/{name}" for name in sorted(own, key=lambda name: int(name.split("-")[-1].split(".")[0]))]


def is_right(name):
    return whole(f"{mount}/{name}") == whole(f"{reference}/{name}")


def parts_that_cannot_be_made():
    """Those that are foreseen can neither be staged nor be read; and can once the source is well."""
    first, second, *rest = parts("vllm/tp1", 0)
    is_sick(True)
    assert isinstance(tried(lambda: beyond_header(f"{mount}/{first}")), int)
    wait_for(lambda: figure("failed_stages_total"))
    assert isinstance(tried(lambda: whole(f"{mount}/{second}")), int)
    is_sick(False)
    assert all(is_right(name) for name in [first, second, *rest])


def parts_that_are_waited_for(rank, well_in_time):
    """Who waits for one that fails is answered with what streaming gives; the rest is served meanwhile."""
    first, second, *rest = parts("vllm/tp2", rank)
    for name in first, second:  # as engines do; the first open of a file reads its header
        open(f"{mount}/{name}", "rb").close()
    failed = figure("failed_stages_total")
    results, opened, go_on = [], threading.Event(), threading.Event()

    def open_and_read():
        with open(f"{mount}/{second}", "rb") as file:
            opened.set()
            go_on.wait()
            return file.read()

    loader = threading.Thread(target=attempt, args=(lambda: beyond_header(f"{mount}/{first}"), []))
    waiter = threading.Thread(target=attempt, args=(open_and_read, results))
    wait_for_quiet()
    forget_source()
    answers(False)
    loader.start()
    time.sleep(1)
    waiter.start()
    time.sleep(0.5)
    assert not opened.is_set() and figure("failed_stages_total") == failed
    is_sick(True)
    answers(True)
    wait_for(lambda: figure("failed_stages_total") > failed)
    assert opened.wait(20)
    is_sick(not well_in_time)
    go_on.set()
    waiter.join(20)
    loader.join(20)
    is_sick(False)
    if well_in_time:
        assert results == [whole(f"{reference}/{second}")]
    else:
        assert results and isinstance(results[0], int), results
    assert all(is_right(name) for name in [first, second, *rest])


try:
    parts_that_cannot_be_made()
    parts_that_are_waited_for(0, False)
    parts_that_are_waited_for(1, True)
except BaseException:
    traceback.print_exc()
    answers(True)
    os._exit(1)  # with whatever threads still wait
