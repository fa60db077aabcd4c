#!/usr/bin/env bash
# Our key-value store compared with RocksDB and LevelDB: `vellum kv bench` with values of 128 B, 512 B and 1 KiB, one
# and two threads.
# Usage: crates/vellum/benches/kv.sh [ROUNDS] [SECONDS] [MIB] [COMPRESSION] [DURABILITY]
# Writes docs/results/kv.json (kv-lz4.json with that compression, when LevelDB uses Snappy; kv-sync.json if every write
# is synced), prints its tables.
# Stores hold MIB of data, over five times the memory given to an engine. A workload that does not fill a store runs for
# SECONDS; for the bytes of overwriting every engine writes as many records again as there are, twice over. Stores are
# made in VELLUM_BENCH_DIR (default: beside the binary); VELLUM_BENCH_QUIET is a command that runs each bench.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
rounds=${1:-2} seconds=${2:-1} mib=${3:-128} compression=${4:-none} durability=${5:-buffered}
build
scripts=$(dirname "$0")
stores=${VELLUM_BENCH_DIR:-$(dirname "$vellum")}
workloads=fillrandom,overwrite,ycsb
memory=(--memtable 8MiB --memtables 2 --cache 8MiB)
bench() { # value, threads, rounds, engines, name
    local keys=$((mib * 1048576 / ($1 + 16)))
    # More requests than fit into the time, but not many more: YCSB E draws among all records it expects to insert.
    ${VELLUM_BENCH_QUIET:-} "$vellum" kv bench --dir "$stores" --workload $workloads --engine "$4" --value "$1" --threads "$2" \
        --keys $keys --seconds "$seconds" --requests $((10 * seconds * keys)) --rounds "$3" "${memory[@]}" \
        --compression "$compression" --durability "$durability" --json >"$work/$5.json"
    python3 "$scripts/kv_table.py" show "$work/$5.json"
}
bench_bytes() { # value, threads, rounds, engines, name
    local keys=$((mib * 1048576 / ($1 + 16)))
    ${VELLUM_BENCH_QUIET:-} "$vellum" kv bench --dir "$stores" --workload fillrandom,overwrite --engine "$4" --value "$1" --threads "$2" \
        --keys $keys --requests $((2 * keys)) --rounds "$3" "${memory[@]}" \
        --compression "$compression" --durability "$durability" --json >"$work/bytes-$5.json"
    python3 "$scripts/kv_table.py" show "$work/bytes-$5.json"
}
for value in 128 512 1024; do
    for threads in 1 2; do
        bench $value $threads "$rounds" vellum,vellum-unmapped,rocksdb,rocksdb-mapped "$value-$threads"
        bench $value $threads "$rounds" vellum,vellum-unmapped,leveldb "leveldb-$value-$threads"
        bench_bytes $value $threads "$rounds" vellum,vellum-unmapped,rocksdb "$value-$threads"
    done
done
mkdir -p "$results"
suffix=$([ "$compression" = none ] || echo "-$compression")$([ "$durability" = buffered ] || echo "-$durability")
python3 "$scripts/kv_table.py" rows "$results/kv$suffix.json" \
    "crates/vellum/benches/kv.sh $rounds $seconds $mib${4:+ $4}${5:+ $5}" "$work"/*.json
