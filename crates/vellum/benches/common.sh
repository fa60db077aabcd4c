# Common parts of the benches in this directory; sourced, not run. Needs bash.
# Sets `root` (the workspace), `vellum` (the release binary) and `work` (a temporary directory).

need() { # tools
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 0; }
    done
}
need_root() {
    [ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] ||
        { echo "skipped: needs root, /dev/fuse and loop devices"; exit 0; }
}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
results=$root/docs/results
build() {
    (cd "$root" && cargo build -q --release -p vellum --bin vellum)
    vellum=$(cd "$root" && cargo metadata --no-deps --format-version 1 |
        python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')/release/vellum
}
# Flash images are in memory, if there is room: this machine's disk is not what is measured.
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" vellum-bench.XXXXXX)
started=()
# Ends the servers; after a failure it shows their standard error to its end.
clean_up() {
    local status=$? said
    for pid in "${started[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    if [ "$status" != 0 ]; then
        for said in "$work"/*.err; do
            if [ -s "$said" ]; then echo "${said##*/}:" >&2; cat "$said" >&2; fi
        done
    fi
    rm -rf "$work"
}
trap clean_up EXIT
# Waits until a server reports that it is ready (its output is in a file). If it ends instead, `clean_up` shows its
# output.
await() { # pid, output
    until grep -q '"event":"ready"' "$2" 2>/dev/null; do
        kill -0 "$1" 2>/dev/null || { cat "$2" >&2; return 1; }
        sleep 0.05
    done
}
# Load of all cores in percent, over two seconds in which we do nothing.
busy() {
    local before after
    before=$(head -1 /proc/stat); sleep 2; after=$(head -1 /proc/stat)
    python3 -c 'import sys
before, after = (list(map(int, line.split()[1:9])) for line in sys.argv[1:])
spent = [b - a for a, b in zip(before, after)]
print(round(100 * (1 - (spent[3] + spent[4]) / sum(spent))))' "$before" "$after"
}
# Ticks of CPU time used by processes.
ticks() { for pid in "$@"; do cat "/proc/$pid/stat"; done | awk '{ sum += $14 + $15 } END { print sum }'; }
# Runs fio and appends the results to $work/runs: server, label, IOPS, CPU of the pids per request.
fio_run() { # server, label, pids, seconds, options of fio...
    local server=$1 label=$2 pids=$3 seconds=$4 before spent; shift 4
    before=$(ticks $pids)
    fio --name=run --size=1g --time_based --runtime="$seconds" --output-format=json "$@" >"$work/fio.json"
    spent=$(($(ticks $pids) - before))
    python3 - "$server" "$label" "$work/fio.json" "$spent" "$(getconf CLK_TCK)" >>"$work/runs" <<'PY'
import json, sys
server, label, path, ticks, hz = sys.argv[1:]
text = open(path).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
requests = job["read"]["total_ios"] + job["write"]["total_ios"]
print(server, label, job["read"]["iops"] + job["write"]["iops"], int(ticks) / int(hz) * 1e6 / requests)
PY
}
# Writes MiB of records of 1 KiB to $work/all.tsv, unordered, and percent of them again, four times for each NAME=ROW,
# in runs of ROW keys, to $work/NAME0.tsv to NAME3.tsv.
records() { # MiB, percent, NAME=ROW...
    python3 - "$work" "$@" <<'PY'
import base64, random, sys
work, mib, percent, kinds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
count, rng = mib * 1024, random.Random(1)
def write(name, keys):
    with open(f"{work}/{name}.tsv", "w") as file:
        for key in keys:
            file.write(f"{key:08d}\t{base64.b64encode(rng.randbytes(762)).decode()}\n")
write("all", rng.sample(range(count), count))
for turn in range(4):
    for name, row in ((name, int(row)) for name, row in (kind.split("=") for kind in kinds)):
        starts = rng.sample(range(count - row + 1), count * percent // 100 // row)
        write(f"{name}{turn}", [at + i for at in starts for i in range(row)])
PY
}
