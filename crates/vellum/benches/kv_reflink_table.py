"""Rows of kv_reflink.sh as a table, and as rows for RESULTS.md (docs/json/lab.md)."""
import json
import sys

rows_path, out, command, mib, percent = sys.argv[1:]
rows = [json.loads(line) for line in open(rows_path)]
print("file system | least island | KiB written | of off | kept, MiB | cloned, MiB | s | read again, s | tables, MiB")
results = []
for kind in dict.fromkeys(row["kind"] for row in rows):
    mine = [row for row in rows if row["kind"] == kind]
    off = mine[0]
    assert all(row["sum"] == off["sum"] for row in mine), f"{kind}: the stores differ"
    for row in mine:
        share = row["written_kib"] / off["written_kib"]
        reuse = row["reuse"]
        print(f"{kind} | {row['label']} | {row['written_kib']} | {share:.2f} | {reuse['kept_bytes'] / 2**20:.1f} | "
              f"{reuse['reflinked_bytes'] / 2**20:.1f} | {row['seconds']:.2f} | {row['read_seconds']:.2f} | "
              f"{row['table_bytes'] / 2**20:.0f}")
    every = "; ".join(f"islands from {row['label']} on: {row['written_kib'] / off['written_kib']:.2f} x the sectors, "
                      f"{row['seconds'] / off['seconds']:.2f} x the time, {row['read_seconds'] / off['read_seconds']:.2f} x to read"
                      for row in mine[1:])
    why = (f"{mib} MiB of records of 1 KiB, {percent} % of them set anew, image in memory; off: {off['written_kib']} KiB in "
           f"{off['seconds']:.1f} s; {every}; one run, five reads")
    best = mine[1]
    share = best["written_kib"] / off["written_kib"]
    read = off["read_seconds"] / best["read_seconds"]
    results += [
        dict(claim=f"{kind}: sectors that a merge writes with `--reuse relink --island-min 0`", target="at most 0.5 x those of `--reuse off`",
             ours=f"{share:.2f} x", command=f"sudo {command}", holds=share <= 0.5, why=why),
        dict(claim=f"{kind}: speed at which the result is read, page cache dropped", target="at least 0.85 x", ours=f"{read:.2f} x",
             command=f"sudo {command}", holds=read >= 0.85, why=f"`kv dump` of all records, median of five; {every}"),
    ]
json.dump(results, open(out, "w"), indent=1, sort_keys=True, ensure_ascii=False)
