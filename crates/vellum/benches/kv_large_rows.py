"""Rounds of `kv bench` on a large store as rows of docs/results: kv_large_rows.py COMMAND RESULT OWN WIDE"""

import json
import sys

TARGET = 0.7  # of RocksDB's bytes
PEERS = ("RocksDB, default and tuned", "RocksDB with levels 0 and 1 as large as ours")

command, result, *reports = sys.argv[1:]
rows = []
for path, peers in zip(reports, PEERS):
    with open(path) as file:
        report = json.load(file)
    for workload in dict.fromkeys(run["workload"] for run in report["results"]):
        runs = {run["engine"]: run for run in report["results"] if run["workload"] == workload}
        written = {name: run["written_bytes"] / run["user_bytes"] for name, run in runs.items()}
        ours, theirs = written.pop("vellum"), min(written.values())
        twice = ", twice as many records as there are keys" if workload == "overwrite" else ""
        rows.append(
            {
                "claim": f"`vellum kv bench`, {workload} of {report['keys']:,} records of {report['value_bytes']} B, beside {peers}: bytes handed to the file system until it settled{twice}",
                "command": command,
                "holds": ours / theirs <= TARGET,
                "ours": f"{ours / theirs:.2f} x",
                "target": f"at most {TARGET:g} x",
                "why": f"{ours:.2f} beside {theirs:.2f} for each byte of keys and values; medians of {report['rounds']} rounds in turn, {report['threads']} threads, the memory of kv.sh",
            }
        )
for row in rows:
    print(f"{'holds ' if row['holds'] else 'MISSED'} {row['claim']}: {row['ours']}")
with open(result, "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
