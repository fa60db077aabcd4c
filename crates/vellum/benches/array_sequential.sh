#!/usr/bin/env bash
# A RAID-5 of files behind SSD caches over NBD, and the same array without: sequential writes of whole rows and more.
# Usage: crates/vellum/benches/array_sequential.sh [ROUNDS] [SECONDS]    Writes docs/results/array-sequential.json.
# Members are as slow as modelled 7,200 rpm disks (`array serve --pace sata-1tb`). Each round first writes where
# nothing was written before, then 32 MiB repeatedly, which are cached, with a quarter of each page changed.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need fio python3 cargo
rounds=${1:-3} seconds=${2:-5}
build
for kind in bare kdd wt; do
    mkdir "$work/$kind"
    cache=()
    [ $kind = bare ] || cache=(--cache ssd --cache-size 1GiB --policy $kind)
    (cd "$work/$kind" && "$vellum" array create a.toml --level 5 --size 2GiB --members d0 d1 d2 d3 d4 "${cache[@]}" >/dev/null)
    "$vellum" array serve "$work/$kind/a.toml" --nbd "unix:$work/$kind.sock" --json --pace sata-1tb \
        >"$work/$kind.out" 2>"$work/$kind.out.err" &
    started+=("$!")
    await "$!" "$work/$kind.out"
done
idle=$(busy)
for round in $(seq "$rounds"); do
    for size in 256m 32m; do
        offset=0
        [ $size = 32m ] || offset=$((round * 256))m
        jobs=()
        for kind in bare kdd wt; do
            fio --name=run --ioengine=nbd --uri="nbd+unix:///?socket=$work/$kind.sock" --rw=write --bs=1m --size=$size --offset=$offset \
                --iodepth=4 --buffer_compress_percentage=75 --time_based --runtime="$seconds" --output-format=json \
                >"$work/$kind.$size.$round.json" &
            jobs+=("$!")
        done
        wait "${jobs[@]}"
    done
done
mkdir -p "$results"
python3 "$(dirname "$0")/array_sequential_table.py" "$work" "$results/array-sequential.json" "$rounds" "$seconds" "$idle"
