#!/usr/bin/env bash
# The FlashKV paper's light traffic (Figure 6) on boards with its own erase blocks of 2 MiB: superblocks of 16, 32 and
# 64 MiB on 8, 16 and 32 channels. No board needs garbage collection. Virtual time: the machine need not be idle.
# Usage: crates/vellum/benches/flashkv_light.sh [RECORDS]     Writes docs/results/flashkv-light.json, prints its rows.
# RECORDS, of 23 and 1000 bytes, are loaded, and as many requests follow; twice as many in A on 32 channels. All that
# LevelDB programs stays on its flash, which is memory: twenty minutes, and 19 GiB. So original LevelDB, which programs
# most, has 32 channels only, and its runs come first, beside those that program least.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
records=${1:-1000000}
build
one() { # records, channels, workload, engine
    "$vellum" kv bench --device "open-channel-$2" --engine "$4" --workload "ycsb-$3" --keys "$1" --requests "$1" \
        --value 1000 --threads 8 --cache $(($1 / 5 * 1000)) --json >"$work/$1.$2.$3.$4.json"
}
grid() { # records, channels, workloads, engines
    for channels in $2; do for workload in $3; do for engine in $4; do one "$1" "$channels" "$workload" "$engine"; done; done; done
}
finer="LevelDB-ext4 FlashKV Vellum Vellum-reuse"
{ grid "$records" 32 "a b c d f" LevelDB-original; grid $((2 * records)) 32 a "$finer"; } &
large=$!
started+=("$large")
grid "$records" "32 16 8" "a b c d f" "LevelDB-ParaFS FlashKV-raw $finer"
wait $large
mkdir -p "$results"
python3 "$(dirname "$0")/flashkv_light_rows.py" "crates/vellum/benches/flashkv_light.sh${1:+ $1}" "$results/flashkv-light.json" "$work"/*.json
