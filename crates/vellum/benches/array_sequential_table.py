"""What array_sequential.sh measured, as a table and as rows of docs/results:
array_sequential_table.py DIRECTORY RESULT ROUNDS SECONDS BUSY_BEFORE"""

import statistics
import sys

import side_by_side

TARGET = 0.9


def main():
    directory, result, rounds, seconds, before = sys.argv[1:]
    rows = []
    for size, what in (("256m", "of sectors that no cache has"), ("32m", "over and over in 32 MiB")):
        rates = {
            kind: [rate / 1e6 for rate in side_by_side.rates(directory, kind, size, rounds, "bw_bytes")]
            for kind in ("bare", "kdd", "wt")
        }
        for kind in ("kdd", "wt"):
            row = side_by_side.row(
                rates[kind],
                rates["bare"],
                TARGET,
                claim=f"RAID-5 of five files with a cache ({kind}) over NBD, beside the same array without: "
                f"sequential writes of 1 MiB, {what}",
                target=f"at least {TARGET} x its rate, members as slow as disks",
                command=f"crates/vellum/benches/array_sequential.sh {rounds} {seconds}",
                why=f"median of {rounds} rounds of {seconds} s, all arrays side by side: "
                f"{statistics.median(rates[kind]):.1f} beside {statistics.median(rates['bare']):.1f} MB/s, four writes "
                "at once; members paced as modelled 7,200 rpm SATA disks without write cache, each with the log "
                f"of the rows whose parity it has; cores {before} % busy before",
            )
            rows.append(row)
            side_by_side.show(row, f"{kind:4} {what:30} {row['ours']}")
    side_by_side.write(result, rows)


main()
