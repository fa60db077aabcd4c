#!/usr/bin/env bash
# Speed of the key-value store in virtual time: YCSB requests per second of wall time, if 90 % of the requests hit
# the cache.
# Usage: crates/vellum/benches/kv_simulated.sh [ROUNDS]      Writes docs/results/kv-simulated.json, prints its rows.
# A store of 30,000 records of 100 B on the board of the FlashKV paper. Numbers of clients take turns.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
rounds=${1:-5}
build
for round in $(seq "$rounds"); do
    for clients in 1 8; do
        "$vellum" kv bench --device open-channel-34 --engine vellum --workload ycsb-c,ycsb-b,ycsb-a --keys 30000 --value 100 --threads $clients \
            --block-pages 4 --settle --requests 3000000 --cache 3100KiB --json >"$work/$clients-$round.json"
    done
done
python3 "$(dirname "$0")/kv_simulated_rows.py" "crates/vellum/benches/kv_simulated.sh $rounds" "$results/kv-simulated.json" "$work"/*.json
