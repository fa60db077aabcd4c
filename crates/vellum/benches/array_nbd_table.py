"""What array_nbd.sh measured, as a table and as rows of docs/results:
array_nbd_table.py DIRECTORY RESULT ROUNDS SECONDS BUSY_BEFORE BUSY_AFTER"""

import json
import statistics
import sys

TARGET = 3


def iops(path):
    with open(path) as file:
        text = file.read()
    return json.loads(text[text.index("{"):])["jobs"][0]["write"]["iops"]


def main():
    directory, result, rounds, seconds, before, after = sys.argv[1:]
    rows = []
    for which, clients in (("1", "one connection"), ("32", "32 connections"), ("deep", "one connection, 16 deep")):
        rates = {
            kind: [iops(f"{directory}/{kind}.{which}.{n + 1}.json") for n in range(int(rounds))]
            for kind in ("bare", "kdd")
        }
        ratios = [kdd / bare for kdd, bare in zip(rates["kdd"], rates["bare"])]
        ratio = statistics.median(ratios)
        rows.append(
            {
                "claim": "RAID-5 of five files with a KDD cache over NBD, beside the same array without: "
                f"4 KiB random overwrites of 32 MiB, {clients}",
                "target": f"at least {TARGET} x its IOPS, members as slow as disks",
                "ours": f"{ratio:.2f} x (rounds {min(ratios):.2f} to {max(ratios):.2f})",
                "command": f"crates/vellum/benches/array_nbd.sh {rounds} {seconds}",
                "holds": ratio >= TARGET,
                "why": f"median of {rounds} rounds of {seconds} s, both arrays side by side: "
                f"{statistics.median(rates['kdd']):.0f} beside {statistics.median(rates['bare']):.0f} IOPS; members "
                "paced as modelled 7,200 rpm SATA disks without write cache; what is written fits into the cache's memory window, "
                "and a write changes a quarter of its page; "
                f"cores {before} % busy before and {after} % after",
            }
        )
        print(f"{'holds ' if ratio >= TARGET else 'MISSED'} {clients:24} {rows[-1]['ours']:28} {rows[-1]['why']}")
    with open(result, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")


main()
