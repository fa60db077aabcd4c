#!/bin/sh
# A loop device over our FUSE file beside one over nbdfuse over nbdkit's memory plugin: same fio, rounds interleaved.
# Usage, as root: crates/serve/benches/loop.sh [ROUNDS] [SECONDS]     Prints medians in IOPS and the ratio.
set -eu
rounds=${1:-5} seconds=${2:-4}
[ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] || { echo "skipped: needs root, FUSE and loop"; exit 0; }
for tool in fio nbdkit nbdfuse losetup python3 cargo; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed"; exit 0; }
done
cd "$(dirname "$0")/../../.."
cargo build -q --release -p vellum-serve --example fuse_ram
built=$(cargo metadata --no-deps --format-version 1 | python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')
work=$(mktemp -d)
mkdir "$work/dir"
"$built/release/examples/fuse_ram" "$work/vellum" 1GiB & ours=$!
nbdfuse "$work/dir" [ nbdkit --exit-with-parent memory 1G ] & theirs=$!
cleanup() {
    for device in $(losetup -l -n -O NAME,BACK-FILE | grep "$work" | cut -d' ' -f1); do losetup -d "$device"; done
    kill $ours 2>/dev/null || true
    umount "$work/dir" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap cleanup EXIT
attach() { # file
    until [ -s "$1" ]; do sleep 0.05; done
    device=$(losetup --find --show --direct-io=on --sector-size 4096 "$1")
    # Both disks full, so that neither serves holes.
    fio --name=fill --ioengine=libaio --direct=1 --filename="$device" --rw=write --bs=1M --size=1g >/dev/null
    echo "$device"
}
vellum=$(attach "$work/vellum")
nbdfuse=$(attach "$work/dir/nbd")
run() { # label, device, name, fio options
    label=$1 device=$2 name=$3; shift 3
    fio --name=run --ioengine=libaio --direct=1 --filename="$device" --size=1g --time_based --runtime="$seconds" \
        --output-format=json "$@" >"$work/out.json"
    python3 - "$name" "$label" "$work/out.json" >>"$work/results" <<'PY'
import json, sys
name, label, path = sys.argv[1:]
text = open(path).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
print(name, label, job["read"]["iops"] + job["write"]["iops"])
PY
}
for _ in $(seq "$rounds"); do
    for name in vellum nbdfuse; do
        eval "device=\$$name"
        run randread-4k-qd32 "$device" $name --rw=randread --bs=4k --iodepth=32
        run randwrite-4k-qd32 "$device" $name --rw=randwrite --bs=4k --iodepth=32
        run read-128k-qd8 "$device" $name --rw=read --bs=128k --iodepth=8
        run write-128k-qd8 "$device" $name --rw=write --bs=128k --iodepth=8
    done
done
python3 - "$work/results" <<'PY'
import collections, statistics, sys
figures = collections.defaultdict(list)
for line in open(sys.argv[1]):
    name, label, iops = line.split()
    figures[label, name].append(float(iops))
print(f"{'workload':20} {'vellum':>10} {'nbdfuse':>10} {'ratio':>6}")
for label in dict.fromkeys(label for label, _ in figures):
    ours, theirs = (statistics.median(figures[label, n]) for n in ("vellum", "nbdfuse"))
    print(f"{label:20} {ours:10.0f} {theirs:10.0f} {ours / theirs:6.2f}")
PY
