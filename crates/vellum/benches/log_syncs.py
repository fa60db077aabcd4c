"""What a sync of an appended record costs at the device, by what is ahead of the record: nothing, room that was
allocated, or zeros. Usage: log_syncs.py DIRECTORY DEVICE [WRITES]     DEVICE as /proc/diskstats names it, with nothing
else at work on it."""

import os
import sys

STEP = 256 << 10


def written_bytes(device):
    with open("/proc/diskstats") as stats:
        return next(int(line.split()[9]) * 512 for line in stats if line.split()[2] == device)


def bytes_per_sync(path, device, size, ahead, writes):
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.fsync(file)
    os.sync()
    before, at, end = written_bytes(device), 0, 0
    for _ in range(writes):
        if ahead == "room" and at + size > end:
            os.posix_fallocate(file, at, STEP)
            end = at + STEP
        if ahead == "zeros" and at + size > end:
            os.pwrite(file, bytes(STEP), at)
            end = at + STEP
        os.pwrite(file, b"x" * size, at)
        at += size
        os.fdatasync(file)
    after = written_bytes(device)
    os.close(file)
    os.unlink(path)
    return (after - before) / writes


def main():
    directory, device, writes = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    print(f"{'bytes a write':>13}{'nothing':>10}{'room':>10}{'zeros':>10}")
    for size in (170, 1070, 4140, 16400):
        costs = [bytes_per_sync(os.path.join(directory, "log"), device, size, ahead, writes) for ahead in ("nothing", "room", "zeros")]
        print(f"{size:13}" + "".join(f"{cost:10.0f}" for cost in costs))


main()
