"""What ext4.sh measured, as a table and as docs/results/ext4.json: ext4_table.py RUNS RESULT WORKLOAD..."""

import json
import os
import sys

MIB = 1 << 20
REMOVED_PERCENT = 99.5
# Limits on programs with data=journal and `journal`, relative to data=ordered on an ordinary SSD, and on ours.
RATIO = {"copy": 1.02, "sequential": 1.02, "fsync": 1.15}


def load(path):
    with open(path) as file:
        return json.load(file)


def live(run):
    """Bytes programmed by a workload and by closing, without those of mkfs and mounting."""
    fresh, done = (load(f"{run}.{when}")["ledger"] for when in ("fresh", "done"))
    return {key: done[key] - fresh[key] for key in ("host_written_bytes", "programmed_bytes")}


def row(runs, workload, journal, data):
    run = os.path.join(runs, f"{workload}.{journal}.{data}")
    replay = load(run + ".replay")
    modes = {}
    for mode in replay["modes"]:
        home = mode["home"]
        modes[mode["mode"]] = {
            "programmed_bytes": mode["ledger"]["programmed_bytes"],
            "programmed": mode["ledger"]["programmed"],
            "avoided": mode["ledger"]["avoided"],
            "home_written": home["written"],
            "home_removed": home["removed"],
            "home_removed_percent": 100 * home["removed"] / home["written"] if home["written"] else None,
            "wrong_sectors": mode["wrong_sectors"],
        }
    return {
        "workload": workload,
        "journal": journal,
        "journal_bytes": replay["setup"]["journal_bytes"],
        "data": data,
        "requests": replay["setup"]["requests"],
        "host_sectors_written": replay["modes"][0]["host_sectors_written"],
        "live": {dedup: live(f"{run}.{dedup}") for dedup in ("none", "journal")},
        "replay": modes,
    }


def claims(rows):
    """What was to be reached, and what was: ratios of live programs, shares of replays."""
    found = []
    of = {(r["workload"], r["journal"], r["data"]): r for r in rows}

    def claim(workload, claim, target, ours, holds, why):
        command = f"sudo crates/vellum/benches/ext4.sh {workload}"
        found.append(dict(claim=claim, target=target, ours=ours, command=command, holds=holds, why=why))

    for (workload, journal, data), r in of.items():
        if data != "journal":
            continue
        size = f"{r['journal_bytes'] // MIB} MiB journal"
        ours, paper, strong = (
            r["replay"][mode] for mode in ("journal", "woj-paper:xxh64-head", "strong:sha1")
        )
        claim(
            workload,
            f"real ext4, {workload}, {size}: home-location writes of data=journal removed by `journal`",
            f"at least {REMOVED_PERCENT} %",
            f"{ours['home_removed_percent']:.2f} %, {ours['wrong_sectors']} sectors wrong",
            ours["home_removed_percent"] >= REMOVED_PERCENT and ours["wrong_sectors"] == 0,
            f"by the paper's rule {paper['home_removed_percent']:.2f} % and {paper['wrong_sectors']} sectors wrong, "
            f"by `strong` {strong['home_removed_percent']:.2f} %; {ours['home_written']} home sectors",
        )
        programmed = r["live"]["journal"]["programmed_bytes"]
        ordered = of[workload, journal, "ordered"]
        plain, same = (ordered["live"][dedup]["programmed_bytes"] for dedup in ("none", "journal"))
        bare, bare_ordered = (x["replay"]["journal-nvram"]["programmed_bytes"] for x in (r, ordered))
        limit = RATIO.get(workload)
        claim(
            workload,
            f"real ext4, {workload}, {size}: programs of data=journal with `journal` over those of data=ordered",
            f"at most {limit:.2f} x" if limit else "shown, no target",
            f"{programmed / plain:.3f} x on an ordinary SSD, {programmed / same:.3f} x on the same disk",
            programmed / min(plain, same) <= limit if limit else None,
            f"MiB programmed: data=journal {programmed / MIB:.1f}, on an ordinary SSD "
            f"{r['live']['none']['programmed_bytes'] / MIB:.1f}; data=ordered {same / MIB:.1f}, on an ordinary SSD "
            f"{plain / MIB:.1f}. Without NVRAM (replayed, 16 KiB pages): {bare / MIB:.1f} beside "
            f"{bare_ordered / MIB:.1f} of data=ordered",
        )
    return found


def show(rows, found):
    head = ["workload", "jnl", "data", "host MiB", "none", "ours", "none", "strong", "woj-paper", "ours", "no nvram"]
    print(f"{'':32} {'live, MiB programmed':>20} {'replay, MiB programmed (home writes removed, wrong sectors)':>70}")
    print(("{:11}{:8}{:8}" + "{:>9}" * 3 + "{:>9}" + "{:>17}" * 3 + "{:>10}").format(*head))
    for r in rows:
        m = r["replay"]
        cells = [r["workload"], r["journal"], r["data"], f"{r['host_sectors_written'] / 256:.1f}"]
        cells += [f"{r['live'][d]['programmed_bytes'] / MIB:.1f}" for d in ("none", "journal")]
        cells.append(f"{m['none']['programmed_bytes'] / MIB:.1f}")
        for name in ("strong:sha1", "woj-paper:xxh64-head", "journal"):
            share = m[name]["home_removed_percent"]
            wrong = f" !{m[name]['wrong_sectors']}" if m[name]["wrong_sectors"] else ""
            share = "-" if share is None else f"{share:.2f}%"
            cells.append(f"{m[name]['programmed_bytes'] / MIB:.1f} {share}{wrong}")
        cells.append(f"{m['journal-nvram']['programmed_bytes'] / MIB:.1f}")
        print(("{:11}{:8}{:8}" + "{:>9}" * 3 + "{:>9}" + "{:>17}" * 3 + "{:>10}").format(*cells))
    for claim in found:
        print(f"{'holds ' if claim['holds'] else 'MISSED'} {claim['claim']}: {claim['ours']} ({claim['target']})")


def main():
    runs, result, *workloads = sys.argv[1:]
    rows = [
        row(runs, workload, journal, data)
        for journal in ("16", "64")
        for workload in workloads
        for data in ("ordered", "journal")
    ]
    found = claims(rows)
    show(rows, found)
    with open(result, "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


main()
