"""Runs of `kv bench --device` under light traffic as rows of docs/results: flashkv_light_rows.py COMMAND RESULT REPORT..."""

import json
import math
import os
import sys

MANY, OURS = 32, ("Vellum", "Vellum-reuse")  # channels of the paper's best cases

command, result, *paths = sys.argv[1:]
runs = {}  # (records, channels, workload) -> system -> figures
for path in paths:
    records, channels, letter, _ = os.path.basename(path).split(".", 3)
    with open(path) as file:
        report = json.load(file)
    for run in report["results"]:
        runs.setdefault((int(records), int(channels), letter.upper()), {})[run["system"]] = run
moved = sum(run["moved_bytes"] for systems in runs.values() for run in systems.values())
assert moved == 0, f"{moved} bytes were collected: traffic is not light"
sizes = sorted({records for records, _, _ in runs})
rows = []


def run_alone(run):
    return run["run_seconds"]


def with_load(run):
    return run["load_seconds"] + run["run_seconds"]


def load_alone(run):
    return run["load_seconds"]


def ratios(records, faster, slower, seconds, wanted=lambda channels, letter: True):
    """Of each point: channels, workload, and how many times longer `slower` takes."""
    points = sorted(point for point in runs if point[0] == records and wanted(*point[1:]))
    return [(point[1], point[2], seconds(runs[point][slower]) / seconds(runs[point][faster])) for point in points]


def mean(points):
    return math.exp(sum(math.log(value) for *_, value in points) / len(points))


def most(points):
    return max(value for *_, value in points)


def least(points):
    return min(value for *_, value in points)


def spread(points):
    return f"{least(points):.2f} to {most(points):.2f} x"


def by_workload(points):
    return "; ".join(f"{letter}: {value:.2f} x" for _, letter, value in points)


def row(records, claim, target, ours, holds, shape):
    rows.append(
        {
            "claim": f"flashkv, light traffic, erase blocks of 2 MiB, {records:,} records: {claim}",
            "command": command,
            "holds": holds,
            "ours": ours,
            "target": target,
            "why": f"{shape}; values of 1000 bytes, as many requests as records, nothing collected",
        }
    )


def beyond(system):
    return "beyond the paper: " if system in OURS else ""


def on_many(channels, _):
    return channels == MANY


for records in sizes[:1]:
    for seconds, when in ((run_alone, ""), (with_load, "load and run together: ")):
        gains = ratios(records, "FlashKV", "LevelDB-ext4", seconds)
        row(records, f"{when}FlashKV outperforms LevelDB in all cases", "in all cases", spread(gains), least(gains) > 1, "by workload and channels")
        gain = {channels: mean([point for point in gains if point[0] == channels]) for channels in (8, 16, 32)}
        ours = ", ".join(f"{value:.2f}" for value in gain.values()) + " x"
        row(records, f"{when}FlashKV gains more from channels: 1.5 times LevelDB on 8, 1.8 times on 32", "1.5 to 1.8 x", ours, gain[8] < gain[16] < gain[32], "geometric means on 8, 16 and 32 channels")
        gains = ratios(records, "FlashKV", "FlashKV-raw", seconds)
        row(records, f"{when}scheduler, cache and compaction make FlashKV 1.5 times as fast as raw on average", "1.5 x", f"{mean(gains):.2f} x ({spread(gains)})", mean(gains) >= 1.2, "geometric mean; at least 1.2 x")
        gains = ratios(records, "LevelDB-ext4", "LevelDB-original", seconds, on_many)
        row(records, f"{when}tables of a superblock make LevelDB 3.7 times as fast on average", "3.7 x", f"{mean(gains):.2f} x ({spread(gains)})", mean(gains) >= 2, "geometric mean over workloads on 32 channels; at least twice as fast")
    gains = ratios(records, "FlashKV-raw", "LevelDB-ParaFS", run_alone, lambda _, letter: letter in "BC")
    row(records, "FlashKV-raw is 20 % faster than ParaFS at reads (B, C)", "1.20 x", f"{mean(gains):.2f} x ({spread(gains)})", mean(gains) > 1, "geometric mean; faster at all")
    for system in ("FlashKV", *OURS):
        alone, together, load = (ratios(records, system, "LevelDB-original", seconds, on_many) for seconds in (run_alone, with_load, load_alone))
        ours = f"{by_workload(alone)}; with the load {by_workload(together)}; the load {most(load):.1f} x"
        claim = f"{beyond(system)}on 32 channels {system} reaches up to 13.3 times the throughput of original LevelDB"
        row(records, claim, "13.3 x", ours, max(map(most, (alone, together, load))) >= 13.3, "at one workload, or in the load")
for records in sizes:
    for system in ("FlashKV", *OURS):
        gains = ratios(records, system, "LevelDB-ext4", run_alone, on_many)
        claim = f"{beyond(system)}on 32 channels {system} reaches up to 2.2 times the throughput of LevelDB with tables of a superblock"
        ours = f"{by_workload(gains)}; with the load {by_workload(ratios(records, system, 'LevelDB-ext4', with_load, on_many))}"
        row(records, claim, "2.2 x", ours, most(gains) >= 2.2, "at one workload")
for made in rows:
    print(f"{'holds ' if made['holds'] else 'MISSED'} {made['claim']}: {made['ours']}")
with open(result, "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
