"""What merging costs LevelDB's processor: fills a store in memory and asks its compaction thread for its time.

    leveldb_merge.py MIB

Needs Debian's libleveldb1d. MIB of keys and values are put, once with values of 128 and once of 1024 bytes: two loads, from
which follows what an entry costs and what a KiB does.
"""

import ctypes
import os
import random
import shutil
import sys
import tempfile
import time

KEY_BYTES = 8
POOL_BYTES = 1 << 20


class LevelDb:
    """A store without compression, with filters of 10 bits a key."""

    def __init__(self, path):
        self.lib = ctypes.CDLL("libleveldb.so.1d")
        for name in ["options_create", "open", "writeoptions_create", "property_value", "filterpolicy_create_bloom"]:
            getattr(self.lib, "leveldb_" + name).restype = ctypes.c_void_p
        self.error = ctypes.c_char_p()
        options = self.call("options_create")
        self.call("options_set_create_if_missing", options, 1)
        self.call("options_set_compression", options, 0)
        self.call("options_set_filter_policy", options, self.call("filterpolicy_create_bloom", 10))
        self.store = self.call("open", options, path.encode(), ctypes.byref(self.error))
        self.how = self.call("writeoptions_create")
        self.check()

    def call(self, name, *args):
        found = getattr(self.lib, "leveldb_" + name)(*args)
        return ctypes.c_void_p(found) if found is not None else None

    def check(self):
        if self.error.value:
            sys.exit(self.error.value.decode())

    def put(self, key, value):
        lengths = ctypes.c_size_t(len(key)), ctypes.c_size_t(len(value))
        self.call("put", self.store, self.how, key, lengths[0], value, lengths[1], ctypes.byref(self.error))
        self.check()

    def written_mib(self):
        """By flushes and merges, as its statistics have it."""
        stats = ctypes.cast(self.call("property_value", self.store, b"leveldb.stats"), ctypes.c_char_p)
        rows = [line.split() for line in stats.value.decode().splitlines() if line[:3].strip().isdigit()]
        return sum(float(row[5]) for row in rows)


def seconds_of_others(first):
    """Processor time of all threads but those there were first."""
    others = set(os.listdir("/proc/self/task")) - first
    return sum(int(open(f"/proc/self/task/{task}/schedstat").read().split()[0]) for task in others) / 1e9


def fill(first, value_bytes, total_bytes):
    """Entries and KiB that were merged, and the seconds that took."""
    path = tempfile.mkdtemp(dir="/dev/shm")
    store, chosen, pool = LevelDb(path), random.Random(1), os.urandom(POOL_BYTES)
    began = seconds_of_others(first)
    for _ in range(total_bytes // (value_bytes + KEY_BYTES)):
        at = chosen.randrange(POOL_BYTES - value_bytes)
        store.put(chosen.randbytes(KEY_BYTES), pool[at : at + value_bytes])
    ended = None
    while ended != seconds_of_others(first):
        ended = seconds_of_others(first)
        time.sleep(1)
    kib, seconds = store.written_mib() * 1024, ended - began
    store.call("close", store.store)
    shutil.rmtree(path)
    print(f"{value_bytes:4} bytes: {kib / 1024:.0f} MiB in {seconds:.2f} s", flush=True)
    return kib * 1024 / (value_bytes + KEY_BYTES), kib, seconds


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    first = set(os.listdir("/proc/self/task"))
    (c1, k1, s1), (c2, k2, s2) = [fill(first, value_bytes, int(sys.argv[1]) << 20) for value_bytes in [128, 1024]]
    both = c1 * k2 - c2 * k1
    print(f"an entry {(s1 * k2 - s2 * k1) / both * 1e6:.2f} us, a KiB {(c1 * s2 - c2 * s1) / both * 1e6:.2f} us")


main()
