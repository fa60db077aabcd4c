#!/usr/bin/env bash
# A loop device on the real engine's FUSE file, and one on nbdfuse on nbdkit's memory plugin: the same fio.
# Usage, as root: crates/vellum/benches/loop.sh [ROUNDS] [SECONDS]   Writes docs/results/loop.json, prints its table.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need_root
need fio nbdkit nbdfuse losetup python3 cargo
rounds=${1:-7} seconds=${2:-4}
build
scripts=$(dirname "$0")
mkdir "$work/dir"
"$vellum" disk serve --ram 1GiB --dedup journal --fuse "$work/vellum" --json >"$work/out" 2>"$work/out.err" & ours=$!
nbdfuse "$work/dir" [ nbdkit --exit-with-parent memory 1G ] & theirs=$!
started=("$ours" "$theirs")
detach_all() {
    for device in $(losetup -l -n -O NAME,BACK-FILE | grep "$work" | cut -d' ' -f1); do losetup -d "$device"; done
    umount "$work/dir" 2>/dev/null || true
    clean_up
}
trap detach_all EXIT
await "$ours" "$work/out"
until [ -s "$work/dir/nbd" ]; do sleep 0.05; done
for server in vellum nbdfuse; do
    [ $server = vellum ] && file=$work/vellum || file=$work/dir/nbd
    declare "device_$server=$(losetup --find --show --direct-io=on --sector-size 4096 "$file")"
    device=device_$server
    for rw in write randwrite; do # both full, so that neither serves holes, and one pass of overwrites
        fio --name=fill --ioengine=libaio --direct=1 --filename="${!device}" --rw=$rw --bs=256k --size=1g >/dev/null
    done
done
kit=$(pgrep -P "$theirs" nbdkit)
fio_at() { # server, label, options...
    local server=$1 label=$2 device=device_$1 pids=$ours; shift 2
    [ "$server" = vellum ] || pids="$theirs $kit"
    fio_run "$server" "$label" "$pids" "$seconds" --ioengine=libaio --direct=1 --filename="${!device}" "$@"
}
idle=$(busy)
for _ in $(seq "$rounds"); do
    for server in vellum nbdfuse; do
        fio_at $server randread --rw=randread --bs=4k --iodepth=32
        fio_at $server randwrite --rw=randwrite --bs=4k --iodepth=32
        fio_at $server read --rw=read --bs=128k --iodepth=8
        fio_at $server write --rw=write --bs=128k --iodepth=8
    done
done
mkdir -p "$results"
python3 "$scripts/peers_table.py" loop "$work/runs" "$results/loop.json" "$rounds" "$seconds" "$idle" "$(busy)"
