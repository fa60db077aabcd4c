"""Rows of array_core.sh out of what the two benches print: array_core_rows.py WORK RESULT BUSY"""

import json
import os
import re
import sys

UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "GB/s": 1e9, "MB/s": 1e6, "Mitem/s": 1e6, "Kitem/s": 1e3}


def figures(path):
    """(bench, argument) to the lines it prints: [fastest, slowest, median] each, in base units."""
    found, bench, name = {}, "", None
    unit = "|".join(sorted(UNITS, key=len, reverse=True))
    for line in open(path):
        branch = re.match(r"([│ ]*)[├╰]─ (\S.*?)\s\s", line)
        if branch and not branch.group(1):
            bench, name = branch.group(2), (branch.group(2), "")
        elif branch:
            name = (bench, branch.group(2))
        row = [float(number) * UNITS[of] for number, of in re.findall(rf"([\d.]+) ({unit})(?!\S)", line)]
        if name and len(row) >= 3:
            found.setdefault(name, []).append(row[:3])
    return found


def main():
    work, result, busy = sys.argv[1:]
    parity = figures(os.path.join(work, "parity"))
    caches = figures(os.path.join(work, "array_cache"))
    rows = []

    def row(claim, target, ours, holds, why, bench):
        why = f"{why}; one core, the machine was {busy} % busy before"
        command = f"cargo bench -p {bench}"
        rows.append(dict(claim=claim, target=target, ours=ours, holds=bool(holds), why=why, command=command))

    # The fastest is the highest rate.
    fastest, slowest, median = (figure / 1e9 for figure in parity[("p_and_q", "(4, 64)")][1])
    portable = parity[("p_and_q_portable", "(4, 64)")][1][2] / 1e9
    row(
        "RAID-6: P and Q of four chunks of 64 KiB, in cache",
        "at least 20 GB/s of data",
        f"{median:.1f} GB/s ({slowest:.1f} to {fastest:.1f})",
        median >= 20,
        f"median; portable code {portable:.1f} GB/s",
        "vellum-codes --bench parity",
    )
    kinds = ["head", "row", "quarter", "scattered"]
    times = {kind: parity[("delta_encode_and_apply", kind)][0][2] * 1e6 for kind in kinds}
    times["rows"] = parity[("delta_encode_and_apply_long", "rows")][0][2] * 1e6
    typical = max(times[kind] for kind in kinds[:2])
    row(
        "a page's delta, encoded and applied",
        "at most 2 us for a typical page",
        ", ".join(f"{kind} {time:.2f} us" for kind, time in times.items()),
        typical <= 2,
        "medians: a counter of 8 bytes in the head changed; that and 100 bytes, the change of seven pages in ten. Not typical, and mostly zstd's time (docs/decisions/0023): a quarter of the page in runs of 64; 200 single bytes, all over it; rows of text replaced, five eighths of the page",
        "vellum-codes --bench parity",
    )
    rates = {policy: lines[1][2] / 1e6 for (_, policy), lines in caches.items() if policy}
    lru = {policy: rate for policy, rate in rates.items() if policy in ("wa", "wt", "larc")}
    row(
        "`vellum replay --array`: page requests a second of the counter of cache policies, FIO's Zipf workload, a cache of a fifth",
        "at least 2 M/s for policies of LRU's class",
        ", ".join(f"{policy} {rate:.1f} M/s" for policy, rate in rates.items()),
        lru and min(lru.values()) >= 2,
        "medians of five runs of 2,000,000 requests, building the cache included; libCacheSim's LRU is reported at 1.05 to 4.5 M/s on such machines",
        "vellum-lab --bench array_cache",
    )
    with open(result, "w") as out:
        json.dump(rows, out, indent=2, ensure_ascii=False)
        out.write("\n")
    for line in rows:
        print(f"{line['claim']}\n  {line['target']}: {line['ours']}  {'yes' if line['holds'] else 'NO'}")


main()
