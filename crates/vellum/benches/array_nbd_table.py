"""What array_nbd.sh measured, as a table and as rows of docs/results:
array_nbd_table.py DIRECTORY RESULT ROUNDS SECONDS BUSY_BEFORE BUSY_AFTER"""

import statistics
import sys

import side_by_side

TARGET = 3


def main():
    directory, result, rounds, seconds, before, after = sys.argv[1:]
    rows = []
    # A write in place is one access to one disk: with one request at a time there is nothing left to save.
    bound = "; each of ours is one access of one disk, so that no cache that has data on the disks at once does better"
    depths = (("1", "one connection", bound), ("32", "32 connections", ""), ("deep", "one connection, 16 deep", ""))
    for which, clients, more in depths:
        bare, kdd = (side_by_side.rates(directory, kind, which, rounds, "iops") for kind in ("bare", "kdd"))
        row = side_by_side.row(
            kdd,
            bare,
            TARGET,
            claim="RAID-5 of five files with a KDD cache over NBD, beside the same array without: "
            f"4 KiB random overwrites of 32 MiB, {clients}",
            target=f"at least {TARGET} x its IOPS, members as slow as disks",
            command=f"crates/vellum/benches/array_nbd.sh {rounds} {seconds}",
            why=f"median of {rounds} rounds of {seconds} s, both arrays side by side: "
            f"{statistics.median(kdd):.0f} beside {statistics.median(bare):.0f} IOPS; members "
            "paced as modelled 7,200 rpm SATA disks without write cache; what is written fits into the cache's memory "
            f"window, and a write changes a quarter of its page; cores {before} % busy before and {after} % after{more}",
        )
        rows.append(row)
        side_by_side.show(row, f"{clients:24} {row['ours']:28} {row['why']}")
    side_by_side.write(result, rows)


main()
