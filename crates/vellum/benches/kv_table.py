"""What kv.sh measured: `kv_table.py show RUN`, a table of one run; `kv_table.py rows RESULT COMMAND RUN...`, rows of docs/results.
A row stands for one figure of one workload in every cell (value and threads); it holds if it holds in all of them."""

import collections
import json
import os
import sys

RATE, BYTES = 1.5, 0.7  # targets, relative to RocksDB
LEVELDB_RATE = 3
# Compactions come in bursts: bytes written in a second or two mean nothing, those for all keys do.
WHOLE = ("fillrandom", "ycsb-load")
# Reasons why a rate is below parity: by peer, and whether ours maps its files (docs/decisions/0019 has more).
BELOW_PARITY = {
    ("leveldb", True): "a seek waits for memory in each level and each table of level 0, of which LevelDB has fewer, and what a scan hands out is "
    "copied, where LevelDB lends it out of its mapping",
    ("leveldb", False): "LevelDB maps its tables and checks nothing that it reads there; by calls, each leaf that is not in the cache, and each value "
    "in a log, is a system call, and is checked",
    ("rocksdb", False): "each value of a scan that level 0 has in a log is a system call of its own, and level 0 is merged for scans with a core that "
    "clients want",
}


def load(path):
    with open(path) as file:
        return json.load(file)


def by_workload(run):
    """The results of a run: workload -> engine -> figures."""
    found = collections.defaultdict(dict)
    for result in run["results"]:
        found[result["workload"]][result["engine"]] = result
    return found


def show(run):
    print(f"values of {run['value_bytes']} B, {run['threads']} threads, {run['keys']} keys, {run['rounds']} rounds")
    for workload, engines in by_workload(run).items():
        for name, r in engines.items():
            written = r["written_bytes"] / r["user_bytes"] if r["user_bytes"] else 0
            print(
                f"{workload:11} {name:16} {r['requests_per_second'] / 1e3:7.0f} K/s "
                f"({r['requests_per_second_min'] / 1e3:.0f} to {r['requests_per_second_max'] / 1e3:.0f})  "
                f"p50 {r['latency_ns_p50'] / 1e3:6.1f}  p99 {r['latency_ns_p99'] / 1e3:6.1f}  "
                f"p99.9 {r['latency_ns_p999'] / 1e3:7.1f} us  written {written:5.2f} x  "
                f"cpu {r['cpu_ns_per_request'] / 1e3:5.1f} us  {r['memory_bytes'] / 2**20:4.0f} MiB"
            )
    sys.stdout.flush()


def spread(run, ours, peers):
    """Our rate beside the better setting's, round by round."""
    return [
        mine["requests_per_second"] / max(peer["rounds"][i]["requests_per_second"] for peer in peers)
        for i, mine in enumerate(ours["rounds"])
    ]


def counts_bytes(run, workload):
    """In runs for bytes (`bytes-*.json`) every engine overwrites as many records, and nothing but the bytes counts."""
    return run["for_bytes"] == (workload == "overwrite") and (run["for_bytes"] or workload in WHOLE)


def figures(run, workload, peer, engine):
    """What is compared in one cell; empty if the workload or the peer did not run."""
    engines = by_workload(run)[workload]
    mapped = engine == "vellum"
    peers = [r for name, r in engines.items() if name.startswith(peer) and (mapped or not name.endswith("-mapped"))]
    if not peers or engine not in engines:
        return {}
    ours, cell = engines[engine], {}
    if not run["for_bytes"]:
        cell = {"rate": ours[f"ratio_to_{peer}"], "rounds": spread(run, ours, peers)}
        cell["p999"] = ours["latency_ns_p999"] / max(1, min(r["latency_ns_p999"] for r in peers))
        cell["rates"] = (ours["requests_per_second"], max(r["requests_per_second"] for r in peers))
    if counts_bytes(run, workload):
        amplification = lambda r: r["written_bytes"] / r["user_bytes"]
        cell["bytes"] = amplification(ours) / min(map(amplification, peers))
        cell["amplifications"] = (amplification(ours), min(map(amplification, peers)))
    return cell


def size(value):
    return f"{value} B" if value < 1024 else f"{value // 1024} KiB"


def conditions(runs):
    run = runs[0]
    versions = ", ".join(f"{e['name']} {e['version']}" for e in run["engines"] if e["version"])
    snappy = run["compression"] == "lz4" and "leveldb" in versions
    loads = [x for r in runs for x in (r["load_before"], r["load_after"])]
    return (
        f"{versions}; the best setting for each figure; memory {run['memtables']} x "
        f"{run['memtable_bytes'] >> 20} MiB and {run['cache_bytes'] >> 20} MiB of cache, durability {run['durability']}, "
        f"compression {run['compression']}{' (Snappy for LevelDB)' if snappy else ''}; medians of {run['rounds']} interleaved rounds; {os.cpu_count()} cores, load "
        f"{min(loads):.1f} to {max(loads):.1f}, the bench included"
    )


def row(workload, runs, peer, name, key, target, reached, show_cell, unit, engine="vellum"):
    cells = [(run, figures(run, workload, peer, engine)) for run in runs]
    cells = [(run, cell) for run, cell in cells if key in cell]
    if not cells:
        return None
    packed = "" if runs[0]["compression"] == "none" else f" --compression {runs[0]['compression']}"
    packed += "" if runs[0]["durability"] == "buffered" else f" --durability {runs[0]['durability']}"
    label = lambda run: f"{size(run['value_bytes'])}, {run['threads']} thread{'s' if run['threads'] > 1 else ''}"
    is_below = key == "rate" and any(cell[key] < 1 for _, cell in cells)
    reason = BELOW_PARITY.get((peer, engine == "vellum")) if is_below else None
    return {
        "claim": f"`vellum kv bench{packed}`, {workload}, beside {name}: {unit}",
        "target": target,
        "ours": "; ".join(f"{label(run)}: {cell[key]:.2f} x" for run, cell in cells),
        "holds": all(reached(cell[key]) for _, cell in cells),
        "why": "; ".join(f"{label(run)}: {show_cell(cell)}" for run, cell in cells) + ". " + conditions([r for r, _ in cells])
        + (f". Below parity: {reason}" if reason else ""),
    }


def rates(cell):
    low, high = min(cell["rounds"]), max(cell["rounds"])
    ours, theirs = (rate / 1e3 for rate in cell["rates"])
    digits = 0 if theirs >= 10 else 2
    return f"{ours:.{digits}f} beside {theirs:.{digits}f} K/s, rounds {low:.2f} to {high:.2f} x"


def rows(runs):
    order = [w for w in dict.fromkeys(r["workload"] for run in runs for r in run["results"])]
    for workload in order:
        for engine, how in ("vellum", ""), ("vellum-unmapped", ", files not mapped"):
            yield from rows_of(workload, runs, engine, how)


def rows_of(workload, runs, engine, how):
    yield row(
        workload, runs, "rocksdb", "RocksDB", "rate", f"at least {RATE} x", lambda x: x >= RATE, rates,
        "requests a second" + how, engine,
    )
    yield row(
        workload, runs, "rocksdb", "RocksDB", "bytes", f"at most {BYTES} x", lambda x: x <= BYTES,
        lambda c: "{:.2f} beside {:.2f} for each byte of keys and values".format(*c["amplifications"]),
        "bytes handed to the file system until it settled" + (", twice as many records as there are keys" if workload == "overwrite" else "") + how, engine,
    )
    yield row(
        workload, runs, "rocksdb", "RocksDB", "p999", "at most 1 x", lambda x: x <= 1,
        lambda c: f"{c['p999']:.2f} x", "time of the slowest request in a thousand (p99.9)" + how, engine,
    )
    yield row(
        workload, runs, "leveldb", "LevelDB", "rate", f"at least {LEVELDB_RATE} x", lambda x: x >= LEVELDB_RATE, rates,
        "requests a second" + how, engine,
    )


def main():
    if sys.argv[1] == "show":
        return show(load(sys.argv[2]))
    result, command, *paths = sys.argv[2:]
    runs = [dict(load(path), for_bytes=os.path.basename(path).startswith("bytes-")) for path in paths]
    runs.sort(key=lambda run: (run["value_bytes"], run["threads"]))
    made = [dict(found, command=command) for found in rows(runs) if found]
    for found in made:
        print(f"{'holds ' if found['holds'] else 'MISSED'} {found['claim']}: {found['ours']}")
    with open(result, "w") as file:
        json.dump(made, file, indent=1)
        file.write("\n")


main()
