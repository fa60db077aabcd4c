"""Every trace of a directory that has writes through caches of an array, as a table and as rows of docs/results, and
first the trace that is for calibration: array_traces_rows.py VELLUM DIRECTORY RESULT"""

import json
import os
import re
import subprocess
import sys

CACHES = ("5%", "20%")
MODES = "wa,larc,kdd-12,kdd-nvram,kdd"
# Properties that these files do not state themselves.
OPTIONS = {
    "cloudPhysicsIO.vscsi": ["--shift", "32256"],
    "spc_Financial1_head.ssdsim.ascii": ["--format", "mqsim"],
    "heimdall_msr_rw_20_80.105.trace": ["--format", "replayer"],
    "heimdall_msr_most_thpt_rand_iops.1006.trace": ["--format", "replayer"],
    "mqsim_tpcc-small.trace": ["--format", "mqsim"],
    "mqsim_wsrch-small.trace": ["--format", "mqsim"],
    "disksim_ssd-postmark-aligned2.trace": ["--format", "disksim"],
}


def replay(vellum, path, cache):
    """The comparison, or None and why there is none."""
    options = OPTIONS.get(os.path.basename(path), [])
    command = [vellum, "replay", path, "--array", "raid5", "--side-by-side", "--cache", cache, "--compare", MODES]
    done = subprocess.run([*command, *options, "--json"], capture_output=True, text=True)
    if done.returncode == 0:
        found = json.loads(done.stdout)
        return (found, "") if found["sectors"][1] else (None, "has no writes")
    try:
        return None, json.loads(done.stderr.splitlines()[0])["error"]
    except (ValueError, KeyError, IndexError):
        sys.exit(done.stderr)


def hit_ratio(mode):
    totals = mode["totals"]
    return (totals["read_hits"] + totals["write_hits"]) / (totals["reads"] + totals["writes"])


def percent(mode):
    return f"{100 * hit_ratio(mode):.1f} %"


def size(mode):
    return f"{mode['flash_bytes'] / 1e6:.2f} MB"


def both(modes, name):
    return f"{name} {percent(modes[name])} and {size(modes[name])}"


def of_flash(modes):
    kdd, paper, around = modes["kdd"], modes["kdd-12"], modes["wa"]
    ratio = kdd["flash_bytes"] / paper["flash_bytes"]
    return ratio <= 1 / 3, f"{ratio:.3f} x", f"{size(kdd)} beside {size(paper)}, write-around {size(around)}"


def of_reads(modes):
    kdd, paper, around = (modes[name]["times"]["reads"] for name in ("kdd", "kdd-12", "wa"))
    if not kdd["requests"]:
        return None, "no reads", "the trace has none"
    ratio = kdd["mean_ms"] / paper["mean_ms"]
    late = ", requests come faster than these disks serve" if kdd["mean_ms"] > 1000 else ""
    text = f"mean {kdd['mean_ms']:.2f} beside {paper['mean_ms']:.2f} ms, write-around {around['mean_ms']:.2f} ms{late}"
    return ratio <= 1.05, f"{ratio:.3f} x", text


def of_hits(modes):
    kdd, larc = modes["kdd"], modes["larc"]
    text = ", ".join(both(modes, name) for name in ("kdd", "larc", "wa", "kdd-nvram"))
    text += f" (kdd has {kdd['window_pages']} pages in memory besides, the others have none)"
    if not kdd["flash_bytes"] or not hit_ratio(larc):
        # Nothing to divide by, so only hits are compared.
        return hit_ratio(kdd) >= hit_ratio(larc), f"hits {percent(kdd)} beside {percent(larc)}", text
    ratio = hit_ratio(kdd) / kdd["flash_bytes"] / (hit_ratio(larc) / larc["flash_bytes"])
    return ratio >= 1, f"{ratio:.2f} x, hits {percent(kdd)} beside {percent(larc)}", text


CLAIMS = (
    ("flash written by KDD in vellum mode, beside KDD-12 %", "at most 1/3", of_flash),
    ("reads' mean response time of KDD in vellum mode, beside KDD-12 %", "at most 1.05 x", of_reads),
    ("hit ratio / flash bytes of KDD in vellum mode, beside LARC", "at least 1 x", of_hits),
)


def row(trace, claim, runs):
    """One claim of one trace, with all caches."""
    name, target, judge = claim
    judged = {cache: judge({m["mode"]: m for m in run["modes"]}) for cache, run in runs.items()}
    holds = [ok for ok, _, _ in judged.values() if ok is not None]
    return {
        "claim": f"{trace}: {name}",
        "target": target,
        "ours": "; ".join(f"{cache}: {text}" for cache, (_, text, _) in judged.items()),
        "command": "crates/vellum/benches/array_traces.sh DIRECTORY",
        "holds": all(holds) if holds else None,
        "why": "; ".join(
            f"{cache}, {runs[cache]['cache_pages']} pages: {text}" for cache, (_, _, text) in judged.items()
        ),
    }


def calibration():
    """What LRU misses of the OLTP trace, as a test of the tree finds it."""
    command = "cargo test -q -p vellum-array --test main lru_of_the_oltp_trace"
    done = subprocess.run(command.split(), capture_output=True, text=True)
    found = re.search(r"(\d+) of (\d+) reads missed", done.stderr)
    if not found:
        sys.exit(done.stdout + done.stderr)
    misses, reads = map(int, found.groups())
    return {
        "claim": "calibration: LRU miss ratio of the ARC paper's OLTP trace, 2,000 pages",
        "target": "0.5753 (libCacheSim; the ARC paper prints 42.47 % hits)",
        "ours": f"{misses / reads:.4f}",
        "command": command,
        "holds": abs(misses / reads - 0.5753) < 0.00005,
        "why": f"{misses} of {reads} reads miss the write-through policy's pages, with one set",
    }


def main():
    vellum, directory, result = sys.argv[1:]
    rows = [calibration()]
    print(f"holds  {rows[0]['claim']}: {rows[0]['ours']}")
    for trace in sorted(os.listdir(directory)):
        found = {cache: replay(vellum, os.path.join(directory, trace), cache) for cache in CACHES}
        said = {why for _, why in found.values() if why}
        if said:
            print(f"left out  {trace}: {'; '.join(said)}")
            continue
        runs = {cache: run for cache, (run, _) in found.items()}
        for claim in CLAIMS:
            rows.append(row(trace, claim, runs))
            word = {True: "holds ", False: "MISSED", None: "-     "}[rows[-1]["holds"]]
            print(f"{word} {rows[-1]['claim']}\n         {rows[-1]['ours']}\n         {rows[-1]['why']}")
    with open(result, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")


main()
