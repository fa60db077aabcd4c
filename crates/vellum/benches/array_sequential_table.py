"""What array_sequential.sh measured, as a table and as rows of docs/results:
array_sequential_table.py DIRECTORY RESULT ROUNDS SECONDS BUSY_BEFORE"""

import json
import statistics
import sys

TARGET = 0.9


def mb_per_s(path):
    with open(path) as file:
        text = file.read()
    return json.loads(text[text.index("{"):])["jobs"][0]["write"]["bw_bytes"] / 1e6


def main():
    directory, result, rounds, seconds, before = sys.argv[1:]
    rows = []
    for size, what in (("256m", "of sectors that no cache has"), ("32m", "over and over in 32 MiB")):
        rates = {
            kind: [mb_per_s(f"{directory}/{kind}.{size}.{n + 1}.json") for n in range(int(rounds))]
            for kind in ("bare", "kdd", "wt")
        }
        for kind in ("kdd", "wt"):
            ratios = [cached / bare for cached, bare in zip(rates[kind], rates["bare"])]
            ratio = statistics.median(ratios)
            rows.append(
                {
                    "claim": f"RAID-5 of five files with a cache ({kind}) over NBD, beside the same array without: "
                    f"sequential writes of 1 MiB, {what}",
                    "target": f"at least {TARGET} x its rate, members as slow as disks",
                    "ours": f"{ratio:.2f} x (rounds {min(ratios):.2f} to {max(ratios):.2f})",
                    "command": f"crates/vellum/benches/array_sequential.sh {rounds} {seconds}",
                    "holds": ratio >= TARGET,
                    "why": f"median of {rounds} rounds of {seconds} s, all arrays side by side: "
                    f"{statistics.median(rates[kind]):.1f} beside {statistics.median(rates['bare']):.1f} MB/s, four writes "
                    "at once; members paced as modelled 7,200 rpm SATA disks without write cache, each with the log "
                    f"of the rows whose parity it has; cores {before} % busy before",
                }
            )
            print(f"{'holds ' if ratio >= TARGET else 'MISSED'} {kind:4} {what:30} {rows[-1]['ours']}")
    with open(result, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")


main()
