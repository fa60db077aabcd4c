#!/usr/bin/env bash
# What each part of FlashKV brings (Figure 8 of its paper) on a board with the paper's own erase blocks of 2 MiB:
# superblocks of 64 MiB on 32 channels, which take too long for the scoreboard. Nothing is collected. Virtual time: the
# machine need not be idle.
# Usage: crates/vellum/benches/flashkv_parts.sh [RECORDS]     Writes docs/results/flashkv-parts.json, prints its rows.
# RECORDS, of 23 and 1000 bytes, are loaded, and as many requests follow. Two runs at a time.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
records=${1:-1000000}
build
one() { # workload, engine
    "$vellum" kv bench --device open-channel-32 --engine "$2" --workload "ycsb-$1" --keys "$records" --requests "$records" \
        --value 1000 --threads 8 --cache $((records / 5 * 1000)) --json >"$work/$1.$2.json"
}
export -f one
export vellum records work
for workload in a b c d f; do
    for engine in FlashKV FlashKV-raw FlashKV-LRU FlashKV-NOOP FlashKV-1thread FlashKV-2threads; do echo "$workload $engine"; done
done | xargs -P 2 -L 1 bash -c 'one "$@"' one
mkdir -p "$results"
python3 "$(dirname "$0")/flashkv_parts_rows.py" "crates/vellum/benches/flashkv_parts.sh${1:+ $1}" "$results/flashkv-parts.json" "$work"/*.json
