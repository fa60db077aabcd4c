"""What kv_reflink.sh measured as a table, and as rows for RESULTS.md (docs/json/lab.md)."""
import json
import statistics
import sys

work, out, command, mib, percent = sys.argv[1:]
merges = [line.split() for line in open(f"{work}/merges")]
reads = [line.split() for line in open(f"{work}/reads")]
KINDS = list(dict.fromkeys(kind for kind, *_ in merges))


class Store:
    def __init__(self, kind, label, kib, seconds):
        self.label, self.kib, self.seconds = label, int(kib), float(seconds)
        mine = [read for read in reads if read[:2] == [kind, label]]
        self.reads, self.sums = [float(read[2]) for read in mine], {read[3] for read in mine}
        told = json.load(open(f"{work}/told.{kind}.{label}"))
        self.table_bytes, self.reuse = told["table_bytes"], told["reuse"]

    def read_ratios(self, other):
        """How fast it is read, `other` being 1: round by round, in order."""
        return sorted(theirs / ours for ours, theirs in zip(self.reads, other.reads))


print("file system | least island | KiB written | of off | kept, MiB | cloned, MiB | s | read again, s | as fast as off | tables, MiB")
results = []
for kind in KINDS:
    stores = [Store(*merge) for merge in merges if merge[0] == kind]
    assert len(set.union(*(store.sums for store in stores))) == 1, f"{kind}: the stores differ"
    off, *cloned = stores
    for store in stores:
        ratios = store.read_ratios(off)
        print(f"{kind} | {store.label} | {store.kib} | {store.kib / off.kib:.2f} | {store.reuse['kept_bytes'] / 2**20:.1f} | "
              f"{store.reuse['reflinked_bytes'] / 2**20:.1f} | {store.seconds:.2f} | {statistics.median(store.reads):.2f} | "
              f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {store.table_bytes / 2**20:.0f}")
    every = "; ".join(f"islands from {store.label} on: {store.kib / off.kib:.2f} x the sectors, {store.seconds / off.seconds:.2f} x the time, "
                      f"read {statistics.median(store.read_ratios(off)):.2f} x as fast" for store in cloned)
    why = (f"{mib} MiB of records of 1 KiB, {percent} % of them set anew, image in memory; off: {off.kib} KiB in "
           f"{off.seconds:.1f} s; {every}; one merge each")
    best = cloned[0]
    share, ratios = best.kib / off.kib, best.read_ratios(off)
    read = statistics.median(ratios)
    results += [
        dict(claim=f"{kind}: sectors that a merge writes with `--reuse relink --island-min 0`", target="at most 0.5 x those of `--reuse off`",
             ours=f"{share:.2f} x", command=f"sudo {command}", holds=share <= 0.5, why=why),
        dict(claim=f"{kind}: speed at which the result is read, page cache dropped", target="at least 0.85 x",
             ours=f"{read:.2f} x ({ratios[0]:.2f} to {ratios[-1]:.2f})", command=f"sudo {command}", holds=read >= 0.85,
             why=f"`kv dump` of all records, stores read in turn, {len(best.reads)} times; {every}"),
    ]
json.dump(results, open(out, "w"), indent=1, sort_keys=True, ensure_ascii=False)
