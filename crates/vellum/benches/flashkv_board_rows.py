"""Runs of `kv bench --device` on the paper's board as rows of docs/results: flashkv_board_rows.py COMMAND RESULT REPORT..."""

import json
import os
import sys

PBLK, PARAFS, OURS = ("LevelDB-ext4", "LevelDB-F2FS"), ("LevelDB-ParaFS",), ("Vellum", "Vellum-reuse")
RECORD_BYTES = 1023  # with its key

command, result, *paths = sys.argv[1:]
boards, keys = {}, 0  # bytes of flash a record -> workload -> system -> figures
for path in sorted(paths):
    with open(path) as file:
        report = json.load(file)
    keys, size = report["keys"], int(os.path.basename(path).split(".")[0])
    for run in report["results"]:
        letter = run["workload"].removeprefix("ycsb-").upper()
        boards.setdefault(size, {}).setdefault(letter, {})[run["system"]] = run
rows = []


def seconds(run):
    return run["load_seconds"] + run["run_seconds"]


def longer(own):
    return lambda runs, system: seconds(runs[system]) / seconds(runs[own])


def less(own):
    return lambda runs, system: 100 * (1 - runs[own]["programmed_bytes"] / runs[system]["programmed_bytes"])


def efficiency(runs, system):
    return 100 * runs[system]["gc_efficiency"]


def row(size, claim, target, systems, value, form, holds):
    """Holds if it does for the least and the most of all workloads."""
    cells = {workload: [value(runs, system) for system in systems] for workload, runs in boards[size].items()}
    every = [v for values in cells.values() for v in values]
    conditions = (
        f"{keys:,} records with values of 1000 bytes, and as many requests, 34 channels, superblocks of 68 MiB; load and run together; by workload, "
        + ", ".join(systems)
    )
    rows.append(
        {
            "claim": f"flashkv on the paper's board, {size / RECORD_BYTES:.1f} times as large as the records: {claim}",
            "command": command,
            "holds": holds(min(every), max(every)),
            "ours": "; ".join(f"{workload}: {', '.join(form.format(v) for v in values)}" for workload, values in cells.items()),
            "target": target,
            "why": conditions,
        }
    )


for size in sorted(boards):
    row(size, "FlashKV outperforms LevelDB on ext4 and F2FS by 3.2 to 4.5 times", "3.2 to 4.5 x", PBLK, longer("FlashKV"), "{:.2f} x", lambda least, _: least >= 3.2)
    row(size, "FlashKV outperforms LevelDB on ParaFS by 1.8 to 2.2 times", "1.8 to 2.2 x", PARAFS, longer("FlashKV"), "{:.2f} x", lambda least, _: least >= 1.8)
    row(size, "All that FlashKV recycles is invalid", "100 %", ("FlashKV-raw", "FlashKV"), efficiency, "{:.0f} %", lambda least, _: least == 100)
    row(size, "What PBlk recycles is half invalid", "about 50 %", PBLK, efficiency, "{:.0f} %", lambda least, most: least >= 35 and most <= 65)
    row(size, "FlashKV writes 30 to 50 % less than LevelDB on ext4 and F2FS", "30 to 50 %", PBLK, less("FlashKV"), "{:.0f} %", lambda least, _: least >= 30)
    for own in OURS:
        if any(own in runs for runs in boards[size].values()):
            row(size, f"Beyond the paper: {own} outperforms LevelDB on ext4 and F2FS by more than 4.5 times", "more than 4.5 x", PBLK, longer(own), "{:.2f} x", lambda least, _: least > 4.5)
            row(size, f"Beyond the paper: {own} writes 30 to 50 % less than LevelDB on ext4 and F2FS", "30 to 50 %", PBLK, less(own), "{:.0f} %", lambda least, _: least >= 30)
for made in rows:
    print(f"{'holds ' if made['holds'] else 'MISSED'} {made['claim']}: {made['ours']}")
with open(result, "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
