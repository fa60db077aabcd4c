"""The rounds of kv_open.sh: kv_open_rounds.py VELLUM STORE ROUNDS GIB VALUE RESULT BUSY"""

import json
import os
import random
import statistics
import string
import subprocess
import sys
import time

TARGET_SECONDS = 2.0
BATCH = 1000


class Load:
    """`vellum kv load` of records that are drawn here."""

    def __init__(self, vellum, store, keys, value):
        self.keys, self.value, self.rng = keys, value, random.Random()
        letters = string.ascii_letters + string.digits + "+/"
        self.noise = "".join(random.Random(1).choices(letters, k=(1 << 20) + value))
        command = [vellum, "kv", "load", store]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def put(self, numbers):
        starts = [self.rng.randrange(1 << 20) for _ in numbers]
        # Unordered keys: an odd factor modulo a power of two gives a permutation.
        lines = [f"user{number * 0x9E3779B1 % (1 << 32):012d}\t{self.noise[at:at + self.value]}\n" for number, at in zip(numbers, starts)]
        try:
            self.process.stdin.write("".join(lines))
        except BrokenPipeError:
            sys.exit(self.process.stderr.read())

    def fill(self):
        for start in range(0, self.keys, BATCH):
            self.put(range(start, min(start + BATCH, self.keys)))
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit(self.process.stderr.read())

    def be_killed_after(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.put([self.rng.randrange(self.keys) for _ in range(BATCH)])
        if self.process.poll() is not None:
            sys.exit("the load ended before it was killed")
        self.process.kill()
        self.process.wait()


def forget():
    """Has the kernel drop what it holds of files in memory; false if it is not ours to say."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("3\n")
        return True
    except OSError:
        return False


def reopen(vellum, store):
    """Seconds of `vellum kv open`, and MiB of memory that it took."""
    started = time.monotonic()
    process = subprocess.Popen([vellum, "kv", "open", store], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"`vellum kv open` ended with {status}")
    return time.monotonic() - started, usage.ru_maxrss / 1024


def main():
    vellum, store, rounds, gib, value, result, busy = sys.argv[1:]
    rounds, value = int(rounds), int(value)
    keys = int(float(gib) * (1 << 30)) // (value + 16)
    Load(vellum, store, keys, value).fill()
    times, memory = [], []
    for number in range(rounds):
        Load(vellum, store, keys, value).be_killed_after(4 + 1.7 * number)
        is_cold = forget()
        seconds, mib = reopen(vellum, store)
        times.append(seconds)
        memory.append(mib)
        held = sum(os.stat(os.path.join(store, name)).st_blocks * 512 for name in os.listdir(store)) / (1 << 30)
        print(f"round {number}: {seconds:.3f} s, {mib:.0f} MiB, store of {held:.1f} GiB", flush=True)
    verified = subprocess.run([vellum, "kv", "verify", store], stdout=subprocess.DEVNULL).returncode == 0
    row = {
        "claim": f"a key-value store of {gib} GiB, killed with -9 while records are put: time of `vellum kv open`",
        "target": f"under {TARGET_SECONDS:.0f} s",
        "ours": f"{statistics.median(times):.2f} s (rounds {min(times):.2f} to {max(times):.2f})",
        "command": f"crates/vellum/benches/kv_open.sh {rounds} {gib} {value}",
        "holds": max(times) < TARGET_SECONDS and verified,
        "why": f"{rounds} rounds, values of {value} B, store of {held:.1f} GiB at the end, {'nothing' if is_cold else 'much'} of it in memory; "
        f"closing again is part of the time; {max(memory):.0f} MiB of memory at most; `kv verify` afterwards "
        f"{'finds nothing' if verified else 'FINDS DAMAGE'}; {os.cpu_count()} cores, {busy} % busy before",
    }
    print(f"{'holds ' if row['holds'] else 'MISSED'} {row['ours']}: {row['why']}")
    with open(result, "w") as file:
        json.dump([row], file, indent=1)
        file.write("\n")


main()
