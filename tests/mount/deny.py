#!/usr/bin/env python3
"""deny.py COMMAND… - run a command for which fsopen(2) fails with EPERM, as under the seccomp profile of some containers."""
import ctypes
import os
import struct
import sys

FSOPEN = 430  # on all architectures
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2

program = b"".join(struct.pack("=HBBI", *step) for step in [
    (LOAD, 0, 0, 0),  # the number of the call
    (JUMP_EQUAL, 0, 1, FSOPEN),
    (RETURN, 0, 0, ERRNO | 1),
    (RETURN, 0, 0, ALLOW),
])
steps = ctypes.create_string_buffer(program)
filters = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(steps)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filters, 0, 0):
    sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
