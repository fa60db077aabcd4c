"""The replays of array_recorded.sh as a table: array_recorded_table.py DIRECTORY WORKLOAD..."""

import json
import sys

MODELS = ("recorded", "measured", "gaussian:25%", "gaussian:12%")
MODES = ("kdd-12", "kdd-nvram", "kdd")


def replay(directory, workload, model):
    with open(f"{directory}/{workload}.{model}") as file:
        return {mode["mode"]: mode for mode in json.load(file)["modes"]}


def flash(modes, name):
    return f"{modes[name]['flash_bytes'] / 1e6:.1f}"


def delta(mode):
    """The mean length of the deltas that there are, and how many writes with a base have none."""
    made = mode["deltas"]
    mean = f"{100 * made['mean_share']:.0f}" if "mean_share" in made else "-"
    return f"{mean} ({100 * made['none'] / max(made['bases'], 1):.0f})"


def main(directory, workloads):
    print("| workload, written | mean delta (none), %: kdd-12, kdd | WT, flash MB | " + " | ".join(MODES) + " |")
    print("|---|---|---|---|---|---|")
    for workload in workloads:
        replays = [replay(directory, workload, model) for model in MODELS]
        recorded = replays[0]
        written = recorded["wt"]["totals"]["writes"] * 4096 / 1e6
        made = ", ".join(delta(recorded[name]) for name in ("kdd-12", "kdd"))
        of = " | ".join(", ".join(flash(modes, name) for modes in replays) for name in MODES)
        print(f"| {workload}, {written:.0f} MB | {made} | {flash(recorded, 'wt')} | {of} |")
    print(f"\nFlash in MB, by --deltas {', '.join(MODELS)}.")


main(sys.argv[1], sys.argv[2:])
