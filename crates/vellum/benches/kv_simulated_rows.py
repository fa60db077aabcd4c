"""Rounds of `kv bench --device` as rows of docs/results: kv_simulated_rows.py COMMAND RESULT REPORT..."""

import json
import statistics
import sys

TARGET = 1.0  # million per second

command, result, *reports = sys.argv[1:]
runs = {}
for path in reports:
    with open(path) as file:
        report = json.load(file)
    for run in report["results"]:
        runs.setdefault((run["workload"], report["threads"]), []).append(run)
rows = []
for (workload, clients), rounds in sorted(runs.items(), reverse=True):
    rates = [run["requests_per_wall_second"] / 1e6 for run in rounds]
    rate = statistics.median(rates)
    merged = "" if workload == "ycsb-c" else "; each update is flushed and merged on that core, too"
    rows.append(
        {
            "claim": f"{workload} on a modelled board, {clients} client{'s' if clients > 1 else ''} at a time: requests a second of wall time",
            "command": command,
            "holds": rate >= TARGET,
            "ours": f"{rate:.2f} M/s ({min(rates):.2f} to {max(rates):.2f})",
            "target": f"at least {TARGET:g} M/s",
            "why": f"median of {len(rates)} rounds in turn; {rounds[0]['cache_hit_share']:.1%} of lookups hit the cache; one core, the store's own code under the simulator's clock{merged}",
        }
    )
for row in rows:
    word = "holds " if row["holds"] else "MISSED"
    print(f"{word} {row['claim']}: {row['ours']}")
with open(result, "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
