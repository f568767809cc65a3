#!/usr/bin/env python3
"""reads.py HOW MOUNTED REFERENCE - read a mounted file in some way and compare it with a plain file.

HOW is one of the functions below; a difference is an assertion, with the place of the first byte that is wrong.
"""
import ctypes
import mmap
import os
import random
import sys
import threading


def same(got, want, off):
    if got != want:
        n = min(len(got), len(want))
        at = next((i for i in range(n) if got[i] != want[i]), n)
        sys.exit(f"{sys.argv[2]}: differs at {off + at}: {len(got)} bytes read, {len(want)} wanted")


def places(size):
    """Offsets and lengths: the edges, then random ones, short and long, over the end."""
    yield from [(0, 0), (0, 1), (0, size), (size - 1, 1), (size, 1), (size + 1, 4096), (4095, 2), (1, size)]
    dice = random.Random(size)
    for _ in range(300):
        off = dice.randrange(size + 10)
        yield off, dice.choice([1, 7, 511, 4096, 65537, 1 << 20, 3 << 20])


def at_random(path, ref):
    fd = os.open(path, os.O_RDONLY)
    for off, length in places(len(ref)):
        same(os.pread(fd, length, off), ref[off:off + length], off)


def in_order(path, ref):
    for step in (4096, 10007, 1 << 20):
        with open(path, "rb", buffering=0) as file:
            off = 0
            while part := file.read(step):
                same(part, ref[off:off + len(part)], off)
                off += len(part)
        assert off == len(ref), (off, len(ref))


def mapped(path, ref):
    fd = os.open(path, os.O_RDONLY)
    for kind, protection in (("SHARED", mmap.PROT_READ), ("PRIVATE", mmap.PROT_READ | mmap.PROT_WRITE)):
        with mmap.mmap(fd, 0, getattr(mmap, "MAP_" + kind), protection) as view:
            for off, length in places(len(ref)):
                same(view[off:off + length], ref[off:off + length], off)
            if kind == "PRIVATE":
                view[0] = view[0] ^ 255
                assert view[0] == ref[0] ^ 255
    assert os.pread(fd, 1, 0) == ref[:1], "a private write reached the file"
    try:
        mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        sys.exit("a shared mapping may be written to")
    except PermissionError:
        pass


def mapped_after_close(path, ref):
    fd = os.open(path, os.O_RDONLY)
    view = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    os.close(fd)
    same(view[:], ref, 0)


def direct(path, ref):
    """Past the page cache, aligned and not."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    area = mmap.mmap(-1, 4 << 20)
    for off, length in places(len(ref)):
        n = os.preadv(fd, [memoryview(area)[:min(length, len(area))]], off)
        same(area[:n], ref[off:off + min(length, len(area))], off)


def by_many(path, ref):
    """16 threads on one descriptor and 16 on their own."""
    wrong = []
    shared = os.open(path, os.O_RDONLY)

    def work(seed):
        dice = random.Random(seed)
        fd = shared if seed % 2 else os.open(path, os.O_RDONLY)
        for _ in range(100):
            off, length = dice.randrange(len(ref)), dice.choice([100, 40000, 1 << 20])
            if os.pread(fd, length, off) != ref[off:off + length]:
                wrong.append(off)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def copied(path, ref):
    """sendfile and copy_file_range, as cp and cat use them."""
    with open(path, "rb") as file, open(os.memfd_create("copy"), "w+b") as copy:
        off = 0
        while n := os.sendfile(copy.fileno(), file.fileno(), off, 1 << 30):
            off += n
        same(os.pread(copy.fileno(), len(ref) + 1, 0), ref, 0)


def far(path, ref):
    """The last 3 MiB of a file that is too large to be read whole."""
    fd, plain = os.open(path, os.O_RDONLY), os.open(ref, os.O_RDONLY)
    size = os.fstat(plain).st_size
    assert os.fstat(fd).st_size == size and size > 1 << 31, (os.fstat(fd).st_size, size)
    for off in (size - 3 * (1 << 20), (1 << 31) - 5, (1 << 31) + 1, size - 1, size):
        same(os.pread(fd, 1 << 20, off), os.pread(plain, 1 << 20, off), off)
    with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as view:
        off = (1 << 31) + 12345
        same(view[off:off + 99999], os.pread(plain, 99999, off), off)


def listed(path, ref):
    """A directory, with offsets: from each that telldir gives, the rest of the listing is the same again."""
    libc = ctypes.CDLL(None, use_errno=True)

    class Entry(ctypes.Structure):
        _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_uint16),
                    ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]

    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.POINTER(Entry)
    libc.readdir.argtypes = libc.rewinddir.argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
    stream = libc.opendir(path.encode())
    assert stream, path

    def rest():
        while entry := libc.readdir(stream):
            yield entry.contents.name, entry.contents.off, entry.contents.ino

    entries = list(rest())
    names = sorted(name.decode() for name, _, _ in entries)
    assert names == sorted([".", ".."] + os.listdir(ref)), f"{len(names)} names, {len(os.listdir(ref)) + 2} wanted"
    for i in random.Random(1).sample(range(len(entries)), min(10, len(entries))):
        libc.seekdir(stream, entries[i][1])
        assert list(rest()) == entries[i + 1:], f"another listing after entry {i}"


HOW = [at_random, in_order, mapped, mapped_after_close, direct, by_many, copied, far, listed]

how = {function.__name__: function for function in HOW}[sys.argv[1]]
if how in (far, listed):
    how(sys.argv[2], sys.argv[3])
else:
    with open(sys.argv[3], "rb") as reference:
        how(sys.argv[2], reference.read())
