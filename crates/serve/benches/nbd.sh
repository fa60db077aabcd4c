#!/bin/sh
# Our NBD server over a RAM disk beside nbdkit's memory plugin: same fio, same socket kind, rounds interleaved.
# Usage: crates/serve/benches/nbd.sh [ROUNDS] [SECONDS]     Prints medians in IOPS and the ratio ours / nbdkit.
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
run() { # server, label, fio options
    server=$1 label=$2; shift 2
    fio --name=run --ioengine=nbd --uri="nbd+unix:///?socket=$work/$server" --size=1g --time_based --runtime="$seconds" \
        --output-format=json "$@" >"$work/out.json"
    python3 - "$server" "$label" "$work/out.json" >>"$work/results" <<'PY'
import json, sys
server, label, path = sys.argv[1:]
text = open(path).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
print(server, label, job["read"]["iops"] + job["write"]["iops"])
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
    server, label, iops = line.split()
    figures[label, server].append(float(iops))
print(f"{'workload':20} {'vellum':>10} {'nbdkit':>10} {'ratio':>6}")
for label in dict.fromkeys(label for label, _ in figures):
    ours, theirs = (statistics.median(figures[label, s]) for s in ("vellum", "nbdkit"))
    print(f"{label:20} {ours:10.0f} {theirs:10.0f} {ours / theirs:6.2f}")
PY
