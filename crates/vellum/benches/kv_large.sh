#!/usr/bin/env bash
# Bytes that a store several times as large as its level 1 writes, beside RocksDB: MIB of records with values of 512 B
# put in random order, then twice as many. In stores of up to 256 MiB, as in kv.sh, nothing goes deeper than level 1.
# Usage: crates/vellum/benches/kv_large.sh [ROUNDS] [MIB]     Writes docs/results/kv-large.json, prints its tables.
# RocksDB is also measured with levels 0 and 1 as large as ours are by default.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
rounds=${1:-2} mib=${2:-1280}
build
scripts=$(dirname "$0")
stores=${VELLUM_BENCH_DIR:-$(dirname "$vellum")}
keys=$((mib * 1048576 / (512 + 16)))
bench() { # name, engines, options
    local name=$1 engines=$2; shift 2
    "$vellum" kv bench --dir "$stores" --workload fillrandom,overwrite --engine "$engines" --value 512 --threads 2 --keys $keys \
        --requests $((2 * keys)) --rounds "$rounds" --memtable 8MiB --memtables 2 --cache 8MiB "$@" --json >"$work/$name.json"
    python3 "$scripts/kv_table.py" show "$work/$name.json"
}
bench own vellum,rocksdb
bench wide vellum,rocksdb-tuned --rocksdb-options "max_bytes_for_level_base=268435456;level0_file_num_compaction_trigger=24;level0_slowdown_writes_trigger=40;level0_stop_writes_trigger=56;"
mkdir -p "$results"
python3 "$scripts/kv_large_rows.py" "crates/vellum/benches/kv_large.sh $rounds $mib" "$results/kv-large.json" "$work/own.json" "$work/wide.json"
