"""What nbd.sh and loop.sh measured, as a table and as rows of docs/results:
peers_table.py BENCH RUNS RESULT ROUNDS SECONDS BUSY_BEFORE BUSY_AFTER"""

import collections
import json
import os
import statistics
import sys

WORKLOADS = {
    "randread": "4 KiB random reads, queue depth 32",
    "randwrite": "4 KiB random writes, queue depth 32",
    "read": "128 KiB sequential reads, queue depth 8",
    "write": "128 KiB sequential writes, queue depth 8",
}
# Our door, its peer as named in fio's runs, and a description.
BENCHES = {
    "nbd": ("`vellum disk serve --nbd`", "nbdkit", "nbdkit's memory plugin"),
    "loop": ("a loop device over `vellum disk serve --fuse`", "nbdfuse", "one over nbdfuse over nbdkit's memory plugin"),
}
STRETCH = {"nbd": "; stretch 1.5 x"}


def main():
    bench, runs, result, rounds, seconds, before, after = sys.argv[1:]
    door, peer, peer_text = BENCHES[bench]
    rates, cpu = collections.defaultdict(list), collections.defaultdict(list)
    with open(runs) as file:
        for line in file:
            server, label, iops, us = line.split()
            rates[label, server].append(float(iops))
            cpu[label, server].append(float(us))
    rows = []
    for label in dict.fromkeys(label for label, _ in rates):
        ours, theirs = rates[label, "vellum"], rates[label, peer]
        ratios = [a / b for a, b in zip(ours, theirs)]
        ratio = statistics.median(ratios)
        us, their_us = (statistics.median(cpu[label, s]) for s in ("vellum", peer))
        rows.append(
            {
                "claim": f"{door}, real engine with `journal` in memory, beside {peer_text}: {WORKLOADS[label]}",
                "target": f"at least 1 x its IOPS{STRETCH.get(bench, '')}",
                "ours": f"{ratio:.2f} x (rounds {min(ratios):.2f} to {max(ratios):.2f})",
                "command": f"{'sudo ' if bench == 'loop' else ''}crates/vellum/benches/{bench}.sh {rounds} {seconds}",
                "holds": ratio >= 1,
                "why": f"median of {rounds} interleaved rounds of {seconds} s: {statistics.median(ours):.0f} beside "
                f"{statistics.median(theirs):.0f} IOPS; CPU of the servers {us:.1f} beside {their_us:.1f} us a request; "
                f"fio and the servers share {os.cpu_count()} cores, which were {before} % busy before and {after} % after",
            }
        )
        print(f"{'holds ' if ratio >= 1 else 'MISSED'} {label:10} {rows[-1]['ours']:28} {rows[-1]['why']}")
    with open(result, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")


main()
