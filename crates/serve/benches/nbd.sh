#!/bin/sh
# Our NBD server over a RAM disk beside nbdkit's memory plugin: same fio, same socket kind, rounds interleaved.
# Usage: crates/serve/benches/nbd.sh [ROUNDS] [SECONDS]
# Prints medians in IOPS, their ratio, and the servers' CPU time in microseconds per request: the client is the
# bottleneck and other work on the machine disturbs IOPS, but hardly that.
set -eu
rounds=${1:-5} seconds=${2:-4}
for tool in fio nbdkit python3 cargo; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 0; }
done
cd "$(dirname "$0")/../../.."
cargo build -q --release -p vellum-serve --example nbd_ram
built=$(cargo metadata --no-deps --format-version 1 | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')
work=$(mktemp -d)
"$built/release/examples/nbd_ram" "$work/vellum" 1GiB >/dev/null & ours=$!
nbdkit -f -U "$work/nbdkit" memory 1G & theirs=$!
trap 'kill $ours $theirs 2>/dev/null; wait; rm -rf "$work"' EXIT
for server in vellum nbdkit; do
    until [ -S "$work/$server" ]; do sleep 0.05; done
    # Both disks full, so that neither serves holes.
    fio --name=fill --ioengine=nbd --uri="nbd+unix:///?socket=$work/$server" --rw=write --bs=1M --size=1g >/dev/null
done
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
run() { # server, label, fio options
    server=$1 label=$2; shift 2
    [ $server = vellum ] && pid=$ours || pid=$theirs
    before=$(ticks $pid)
    fio --name=run --ioengine=nbd --uri="nbd+unix:///?socket=$work/$server" --size=1g --time_based --runtime="$seconds" \
        --output-format=json "$@" >"$work/out.json"
    spent=$(($(ticks $pid) - before))
    python3 - "$server" "$label" "$work/out.json" "$spent" "$(getconf CLK_TCK)" >>"$work/results" <<'PY'
import json, sys
server, label, path, ticks, hz = sys.argv[1:]
text = open(path).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
requests = job["read"]["total_ios"] + job["write"]["total_ios"]
print(server, label, job["read"]["iops"] + job["write"]["iops"], int(ticks) / int(hz) * 1e6 / requests)
PY
}
for _ in $(seq "$rounds"); do
    for server in vellum nbdkit; do
        run $server randread-4k-qd1 --rw=randread --bs=4k --iodepth=1
        run $server randread-4k-qd32 --rw=randread --bs=4k --iodepth=32
        run $server randwrite-4k-qd32 --rw=randwrite --bs=4k --iodepth=32
        run $server read-128k-qd8 --rw=read --bs=128k --iodepth=8
        run $server write-128k-qd8 --rw=write --bs=128k --iodepth=8
    done
done
python3 - "$work/results" <<'PY'
import collections, statistics, sys
figures = collections.defaultdict(list)
for line in open(sys.argv[1]):
    server, label, iops, cpu = line.split()
    figures[label, server].append((float(iops), float(cpu)))
print(f"{'workload':20} {'vellum':>10} {'nbdkit':>10} {'ratio':>6} {'cpu us':>8} {'cpu us':>8} {'ratio':>6}")
for label in dict.fromkeys(label for label, _ in figures):
    ours, theirs = ([statistics.median(column) for column in zip(*figures[label, s])] for s in ("vellum", "nbdkit"))
    print(
        f"{label:20} {ours[0]:10.0f} {theirs[0]:10.0f} {ours[0] / theirs[0]:6.2f}"
        f" {ours[1]:8.2f} {theirs[1]:8.2f} {ours[1] / theirs[1]:6.2f}"
    )
PY
