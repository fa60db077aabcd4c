"""What kv_flash.sh measured, as a table and as rows of docs/results: kv_flash_table.py RUNS RESULT COMMAND MIB DISK_MIB VALUE DURABILITY"""

import json
import os
import sys

ENGINES = ("leveldb-default", "leveldb-tuned", "rocksdb-default", "rocksdb-tuned", "vellum")
PEERS = {"LevelDB": "leveldb", "RocksDB": "rocksdb"}


def load(path):
    with open(path) as file:
        return json.load(file)


def user_bytes(bench):
    return sum(result["user_bytes"] for result in bench["results"])


def on_ext4(runs, name):
    """Bytes of one engine, from keys and values down to flash; None if it did not get to its end."""
    run = os.path.join(runs, name)
    try:
        bench = load(run + ".json")
    except (OSError, ValueError):
        return None
    fresh, done = (load(f"{run}.{when}")["ledger"] for when in ("fresh", "done"))
    moved = done["programmed"].get("gc", 0) - fresh["programmed"].get("gc", 0)
    return {
        "user": user_bytes(bench),
        "store": sum(result["written_bytes"] for result in bench["results"]),
        "host": done["host_written_bytes"] - fresh["host_written_bytes"],
        "programmed": done["programmed_bytes"] - fresh["programmed_bytes"],
        "moved": moved,
    }


def on_flash(runs):
    bench = load(os.path.join(runs, "vellum-flash.json"))
    programmed = sum(result["written_bytes"] for result in bench["results"])
    figures = {"user": user_bytes(bench), "store": programmed, "host": programmed, "programmed": programmed, "moved": 0}
    # A peer's log is on flash: beside it counts what would be there, too, if there were no NVRAM.
    logged = programmed + sum(result["nvram_bytes"] for result in bench["results"])
    return figures, dict(figures, store=logged, host=logged, programmed=logged)


def show(figures):
    mb = lambda value: f"{value / 1e6:9.0f}"
    print(f"{'engine':30}{'user':>9}{'store':>9}{'ext4':>9}{'flash':>9}{'moved':>9}  flash bytes a user byte   MB")
    for name, f in figures.items():
        columns = "".join(mb(f[key]) for key in ("user", "store", "host", "programmed", "moved"))
        print(f"{name:30}{columns}  {f['programmed'] / f['user']:.2f}")


def amplification(figures, name):
    return figures[name]["programmed"] / figures[name]["user"]


def rows(figures, command, mib, disk_mib, value, durability):
    each = "1 KiB" if value == "1024" else f"{value} B"
    how_synced = ", every write synced" if durability == "sync" else ""
    why = (f"records of {each}, {mib} MiB of them on disks of {disk_mib} MiB: filled in no order, all set anew, YCSB's load and A; bytes "
           "programmed until all is closed, for each of keys and values")
    for peer, prefix in PEERS.items():
        for mount in ("", ".discard"):
            peers = [name for name in figures if name.startswith(prefix) and name.endswith(".discard") == bool(mount)]
            if not peers:
                continue
            best = min(peers, key=lambda name: amplification(figures, name))
            theirs = amplification(figures, best)
            for name, what in (
                (f"vellum{mount}", "ours on the same ext4"),
                ("vellum-flash", "ours on flash without a file system"),
                ("vellum-flash, NVRAM as flash", "ours on flash without a file system, its log and manifest in NVRAM counted as flash"),
            ):
                if name not in figures:
                    continue
                ours = amplification(figures, name)
                how = " mounted with discard" if mount else ""
                target = 0.7 if peer == "RocksDB" else 1.0
                yield {
                    "claim": f"flash programmed by {what} beside {peer} on ext4{how} on a Vellum disk{how_synced}",
                    "command": f"sudo {command}",
                    "holds": ours <= target * theirs,
                    "ours": f"{ours / theirs:.2f} x ({ours:.2f} beside {theirs:.2f} for each byte of the user)",
                    "target": f"at most {target:g} x",
                    "why": why + f"; the better of its settings ({best.split('.')[0]})",
                }


def main():
    runs, result, *about = sys.argv[1:]
    figures = {}
    for mount in ("", ".discard"):
        for engine in ENGINES:
            found = on_ext4(runs, engine + mount)
            if found:
                figures[engine + mount] = found
    figures["vellum-flash"], figures["vellum-flash, NVRAM as flash"] = on_flash(runs)
    show(figures)
    made = list(rows(figures, *about))
    for row in made:
        print(f"{'holds ' if row['holds'] else 'MISSED'} {row['claim']}: {row['ours']}")
    with open(result, "w") as file:
        json.dump(made, file, indent=1)
        file.write("\n")


main()
