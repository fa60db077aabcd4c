#!/usr/bin/env bash
# A RAID-5 of files with a KDD cache over NBD, and the same without one, run concurrently: 4 KiB random overwrites.
# Usage: crates/vellum/benches/array_nbd.sh [ROUNDS] [SECONDS]    Writes docs/results/array-nbd.json, prints its table.
# Members are as slow as modelled 7,200 rpm disks (`array serve --pace sata-1tb`): the drive model of the lab, in real
# time, over files in memory. The SSD is a file in memory, and not slowed: the time is spent waiting for disks, and the
# cores are idle, so both arrays run concurrently, and neither has pauses for cleaning.
# A write changes about a quarter of its page (fio's --buffer_compress_percentage=75). The working set
# has been written before, and fits into the window: what the cache holds in memory before it goes to flash.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need fio python3 cargo
rounds=${1:-9} seconds=${2:-5}
build
scripts=$(dirname "$0")
declare -A pids
fio_at() { # kind, name of the result, options...
    local kind=$1 name=$2; shift 2
    fio --name=run --ioengine=nbd --uri="nbd+unix:///?socket=$work/$kind.sock" --rw=randwrite --size=32m \
        --buffer_compress_percentage=75 --group_reporting --output-format=json "$@" >"$work/$kind.$name.json"
}
both() { # name of the result, options...
    local jobs=() kind
    for kind in bare kdd; do
        fio_at $kind "$@" &
        jobs+=("$!")
    done
    wait "${jobs[@]}"
}
for kind in bare kdd; do
    mkdir "$work/$kind"
    cache=()
    [ $kind = bare ] || cache=(--cache ssd --cache-size 2GiB)
    (cd "$work/$kind" && "$vellum" array create a.toml --level 5 --size 4GiB --members d0 d1 d2 d3 d4 "${cache[@]}" >/dev/null)
    "$vellum" array serve "$work/$kind/a.toml" --nbd "unix:$work/$kind.sock" --json --pace sata-1tb \
        >"$work/$kind.out" 2>"$work/$kind.out.err" &
    pids[$kind]=$!
    started+=("${pids[$kind]}")
    await "${pids[$kind]}" "$work/$kind.out"
done
both rows --bs=256k --io_size=128m --randseed=1000       # every page four times, whole rows
both settle --bs=4k --numjobs=32 --time_based --runtime=10
idle=$(busy)
for round in $(seq "$rounds"); do
    for connections in 1 32; do
        both "$connections.$round" --bs=4k --numjobs=$connections --time_based --runtime="$seconds" --randseed="$round"
    done
    both "deep.$round" --bs=4k --iodepth=16 --time_based --runtime="$seconds" --randseed="$round"
done
"$vellum" array stat "$work/kdd/a.toml"
mkdir -p "$results"
python3 "$scripts/array_nbd_table.py" "$work" "$results/array-nbd.json" "$rounds" "$seconds" "$idle" "$(busy)"
