#!/usr/bin/env bash
# YCSB on stores larger than memory, beside RocksDB and LevelDB: so much of this machine's memory is locked that FREE_MIB
# are left for the engine and for what the kernel caches of a store of MIB. As root, on an idle machine.
# Usage: sudo crates/vellum/benches/kv_beyond.sh [ROUNDS] [SECONDS] [MIB] [FREE_MIB]
# Writes docs/results/kv-beyond.json, prints its tables. Values of 512 B, two threads; a workload runs for SECONDS.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
[ "$(id -u)" = 0 ] || { echo "skipped: needs root, to lock memory"; exit 0; }
rounds=${1:-1} seconds=${2:-10} mib=${3:-2048} free=${4:-640}
build
scripts=$(dirname "$0")
stores=${VELLUM_BENCH_DIR:-$(dirname "$vellum")}
keys=$((mib * 1048576 / (512 + 16)))
# Flash images of other benches are in memory; nothing here is.
sync && echo 3 >/proc/sys/vm/drop_caches
python3 "$scripts/lock_memory.py" "$free" >"$work/locked" &
started+=("$!")
until grep -q locked "$work/locked"; do kill -0 "${started[-1]}"; sleep 0.2; done
cat "$work/locked"
bench() { # name, engines
    "$vellum" kv bench --dir "$stores" --workload ycsb --engine "$2" --value 512 --threads 2 --keys $keys --seconds "$seconds" \
        --requests $((10 * keys)) --rounds "$rounds" --memtable 16MiB --memtables 2 --cache 32MiB --json >"$work/$1.json"
    python3 "$scripts/kv_table.py" show "$work/$1.json"
}
bench beyond vellum,vellum-unmapped,rocksdb,leveldb
kill -0 "${started[-1]}" || { echo "the memory did not stay locked" >&2; exit 1; }
mkdir -p "$results"
python3 "$scripts/kv_beyond_rows.py" "crates/vellum/benches/kv_beyond.sh $rounds $seconds $mib $free" "$results/kv-beyond.json" \
    "$work/beyond.json" "$mib" "$free"
