#!/usr/bin/env bash
# The FlashKV paper's heavy traffic on its own board (34 channels, erase blocks of 2 MiB: superblocks of 68 MiB), which
# takes too long for the scoreboard. Virtual time: the machine need not be idle. Two runs at a time take 13 GiB of memory.
# Usage: crates/vellum/benches/flashkv_board.sh [RECORDS]     Writes docs/results/flashkv-board.json, prints its rows.
# RECORDS, of 23 and 1000 bytes, are loaded, and as many requests follow. Flash of 1.8 times their bytes is about the
# least that each of the paper's systems ends with; of 2.5 times them, that ours needs with its own rules.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
records=${1:-2500000}
build
runs() { # flash, workloads, engines
    for workload in $2; do for engine in $3; do echo "$1 $workload $engine"; done; done
}
paper="LevelDB-ext4 LevelDB-F2FS LevelDB-ParaFS FlashKV-raw FlashKV"
one() {
    "$vellum" kv bench --device open-channel-34 --engine "$3" --workload "ycsb-$2" --keys "$records" --requests "$records" \
        --value 1000 --threads 8 --cache $((records / 5 * 1000)) --flash $((records * $1)) --json >"$work/$1.$2.$3.json"
}
export -f one
export vellum records work
{ runs 1880 "a b c d f" "$paper"; runs 2580 a "$paper Vellum Vellum-reuse"; } | xargs -P 2 -L 1 bash -c 'one "$@"' one
mkdir -p "$results"
python3 "$(dirname "$0")/flashkv_board_rows.py" "crates/vellum/benches/flashkv_board.sh${1:+ $1}" "$results/flashkv-board.json" "$work"/*.json
