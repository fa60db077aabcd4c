"""Locks all of the memory that is available but MIB, until it is ended: lock_memory.py MIB"""

import ctypes
import mmap
import os
import signal
import sys

left = int(sys.argv[1]) << 20
with open("/proc/meminfo") as file:
    kib = {line.split(":")[0]: int(line.split()[1]) for line in file}
size = max(kib["MemAvailable"] * 1024 - left, mmap.PAGESIZE) // mmap.PAGESIZE * mmap.PAGESIZE
# A shell starts what runs beside it with SIGINT ignored.
signal.signal(signal.SIGINT, lambda *_: sys.exit())
memory = mmap.mmap(-1, size)
libc = ctypes.CDLL(None, use_errno=True)
if libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), ctypes.c_size_t(size)):
    sys.exit(f"mlock of {size >> 20} MiB: {os.strerror(ctypes.get_errno())}")
print(f"locked {size >> 20} MiB, {left >> 20} MiB are left", flush=True)
signal.pause()
