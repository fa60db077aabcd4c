"""Runs of `kv bench --device` with FlashKV's parts as rows of docs/results: flashkv_parts_rows.py COMMAND RESULT REPORT..."""

import json
import math
import os
import sys

command, result, *paths = sys.argv[1:]
runs, keys = {}, 0  # workload -> system -> figures
for path in sorted(paths):
    with open(path) as file:
        report = json.load(file)
    keys, letter = report["keys"], os.path.basename(path).split(".")[0].upper()
    for run in report["results"]:
        runs.setdefault(letter, {})[run["system"]] = run
moved = sum(run["moved_bytes"] for systems in runs.values() for run in systems.values())
assert moved == 0, f"{moved} bytes were collected: traffic is not light"
rows = []


def run_alone(run):
    return run["run_seconds"]


def with_load(run):
    return run["load_seconds"] + run["run_seconds"]


def gains(faster, slower, seconds, letters="ABCDF"):
    """By workload: how many times longer `slower` takes."""
    return {letter: seconds(runs[letter][slower]) / seconds(runs[letter][faster]) for letter in letters}


def mean(gained):
    return math.exp(sum(map(math.log, gained.values())) / len(gained))


def row(claim, target, part, holds, shape):
    """`part`: the faster and the slower system, and the workloads. `holds` is given the gains of the run alone."""
    alone, together = gains(*part[:2], run_alone, *part[2:]), gains(*part[:2], with_load, *part[2:])
    ours = "; ".join(f"{letter}: {value:.2f} x" for letter, value in alone.items())
    ours += f"; geometric mean {mean(alone):.2f} x; with the load {mean(together):.2f} x"
    rows.append(
        {
            "claim": f"flashkv's parts, erase blocks of 2 MiB, {keys:,} records: {claim}",
            "command": command,
            "holds": holds(alone),
            "ours": ours,
            "target": target,
            "why": f"{shape}; values of 1000 bytes, as many requests as records, 32 channels, nothing collected",
        }
    )


def at_one(bound):
    """Nothing is lost anywhere, and as much as `bound` is gained somewhere."""
    return lambda gained: min(gained.values()) >= 1 and max(gained.values()) >= bound


def on_average(bound):
    return lambda gained: mean(gained) >= bound


row("the compaction-aware cache brings 1.25 to 1.64 times the throughput of LRU", "1.25 to 1.64 x", ("FlashKV", "FlashKV-LRU"), at_one(1.25), "nothing lost at any workload, 1.25 x at one")
row("the priority scheduler brings 6 to 20 %", "1.06 to 1.20 x", ("FlashKV", "FlashKV-NOOP"), at_one(1.2), "nothing lost at any workload, 1.2 x at one")
row("two compaction tasks bring 58 % in A and F", "1.58 x", ("FlashKV-2threads", "FlashKV-1thread", "AF"), on_average(1.58), "geometric mean")
row("adaptive parallelism brings 8 to 15 % in B and C", "1.08 to 1.15 x", ("FlashKV", "FlashKV-2threads", "BC"), on_average(1.08), "geometric mean")
row("all optimisations together bring 1.8 times the throughput", "1.8 x", ("FlashKV", "FlashKV-raw"), on_average(1.8), "geometric mean")
for made in rows:
    print(f"{'holds ' if made['holds'] else 'MISSED'} {made['claim']}: {made['ours']}")
with open(result, "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
