#!/usr/bin/env python3
"""load.py HOW REFERENCE FILE… - load files one after another as an engine would, and compare them with those of the same name
below REFERENCE.

HOW is read, mapped (closed before it is read), random (a few places of each, then all), or headers (which compares nothing).
"""
import mmap
import os
import random
import sys


def header(path):
    with open(path, "rb", buffering=0) as file:
        n = int.from_bytes(file.read(8), "little")
        assert len(file.read(n)) == n
    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    assert view[8:9] == b"{"


def read(path):
    parts = []
    with open(path, "rb", buffering=0) as file:
        while part := file.read(1 << 20):
            parts.append(part)
    return b"".join(parts)


def mapped(path):
    with open(path, "rb") as file:
        view = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
    return view[:]


def at_random(path):
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    for _ in range(20):
        off = random.randrange(size)
        assert len(os.pread(fd, 65536, off)) == min(65536, size - off)
    got = os.pread(fd, size, 0)
    os.close(fd)
    return got


how, reference, *files = sys.argv[1:]
for path in files:
    if how == "headers":
        header(path)
        continue
    got = {"read": read, "mapped": mapped, "random": at_random}[how](path)
    with open(os.path.join(reference, os.path.basename(path)), "rb") as file:
        if got != file.read():
            sys.exit(f"{path}: {how}: differs")
