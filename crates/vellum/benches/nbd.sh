#!/usr/bin/env bash
# The real engine with `journal` over NBD compared with nbdkit's memory plugin: the same fio, rounds interleaved.
# Usage: crates/vellum/benches/nbd.sh [ROUNDS] [SECONDS]      Writes docs/results/nbd.json, prints its table.
# Ours keeps flash, map and ledger in memory and collects garbage; nbdkit's plugin copies to and from a buffer. The
# client and the server share the machine's cores, so the servers' CPU time per request is also shown.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need fio nbdkit python3 cargo
rounds=${1:-25} seconds=${2:-1}
build
scripts=$(dirname "$0")
"$vellum" disk serve --ram 1GiB --dedup journal --nbd "unix:$work/vellum" --json >"$work/out" 2>"$work/out.err" & ours=$!
nbdkit -f -U "$work/nbdkit" memory 1G & theirs=$!
started=("$ours" "$theirs")
await "$ours" "$work/out"
until [ -S "$work/nbdkit" ]; do sleep 0.05; done
fio_at() { # server, label, seconds, options...
    local server=$1 label=$2 seconds=$3 pid=$ours; shift 3
    [ "$server" = vellum ] || pid=$theirs
    fio_run "$server" "$label" "$pid" "$seconds" --ioengine=nbd --uri="nbd+unix:///?socket=$work/$server" "$@"
}
for server in vellum nbdkit; do # both full, so that neither serves holes, and one pass of overwrites
    for rw in write randwrite; do
        fio --name=fill --ioengine=nbd --uri="nbd+unix:///?socket=$work/$server" --rw=$rw --bs=256k --size=1g >/dev/null
    done
done
idle=$(busy)
for _ in $(seq "$rounds"); do
    for server in vellum nbdkit; do
        fio_at $server randread "$seconds" --rw=randread --bs=4k --iodepth=32
        fio_at $server randwrite "$seconds" --rw=randwrite --bs=4k --iodepth=32
    done
done
mkdir -p "$results"
python3 "$scripts/peers_table.py" nbd "$work/runs" "$results/nbd.json" "$rounds" "$seconds" "$idle" "$(busy)"
