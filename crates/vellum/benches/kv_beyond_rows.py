"""A run of `kv bench` beyond memory as rows of docs/results: kv_beyond_rows.py COMMAND RESULT RUN MIB FREE_MIB"""

import json
import sys

PEERS = {"rocksdb": 1.5, "leveldb": 3}  # and the rate to reach beside the best of each
OURS = ("vellum", "vellum-unmapped")

command, result, path, mib, free = sys.argv[1:]
with open(path) as file:
    report = json.load(file)
rates = {}  # workload -> engine -> figures
for run in report["results"]:
    rates.setdefault(run["workload"], {})[run["engine"]] = run
rows = []
for ours in OURS:
    for peer, target in PEERS.items():
        cells, worst = [], []
        for workload, runs in rates.items():
            best = max(run["requests_per_second"] for name, run in runs.items() if name.startswith(peer))
            ratio = runs[ours]["requests_per_second"] / best
            cells.append(f"{workload} {ratio:.2f}")
            worst.append(ratio)
        rows.append(
            {
                "claim": f"`vellum kv bench` beyond memory: requests a second of {ours} beside the best {'RocksDB' if peer == 'rocksdb' else 'LevelDB'}",
                "command": command,
                "holds": min(worst) >= target,
                "ours": ", ".join(cells) + " x",
                "target": f"at least {target:g} x",
                "why": f"stores of {mib} MiB with {free} MiB of memory left, {report['keys']:,} records of {report['value_bytes']} B, {report['threads']} threads, medians of {report['rounds']} rounds",
            }
        )
for row in rows:
    print(f"{'holds ' if row['holds'] else 'MISSED'} {row['claim']}: {row['ours']}")
with open(result, "w") as file:
    json.dump(rows, file, indent=1)
    file.write("\n")
