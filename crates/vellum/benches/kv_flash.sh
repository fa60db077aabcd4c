#!/usr/bin/env bash
# Real LevelDB and RocksDB on a real ext4 on a Vellum disk, ours on the same ext4, and ours on flash without a file
# system: bytes counted at the flash, by the ledger, until everything is closed.
# Usage, as root: crates/vellum/benches/kv_flash.sh [MIB] [DISK_MIB] [DURABILITY]
# Writes docs/results/kv-flash.json (kv-flash-sync.json if every write is synced), prints its table.
# A store is filled with MIB of records of 1 KiB, unordered, then all are overwritten; then another is loaded, and YCSB
# A issues as many requests as there are records; disks have DISK_MIB, 12 % more flash, erase blocks of 1 MiB, and no
# deduplication: an ordinary SSD. Where every write is synced, records have 128 B, and memtables are small, so that logs
# are replaced many times.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need_root
need mkfs.ext4 losetup python3 cargo
mib=${1:-96} disk_mib=${2:-448} durability=${3:-buffered}
build
scripts=$(dirname "$0")
flash_mib=$((disk_mib * 112 / 100))
case $durability in
    sync) value=128 memtable=512KiB suffix=-sync ;;
    *) value=1024 memtable=8MiB suffix= ;;
esac
keys=$((mib * 1048576 / value))
bench=(kv bench --workload fillrandom,overwrite,ycsb-load,ycsb-a --value $value --keys $keys --requests $keys
    --durability "$durability" --memtable $memtable --memtables 2 --cache 8MiB --json)
on_ext4() { # engine, options of mount
    local engine=$1 run=$work/$1${2:+.discard}; shift
    "$vellum" disk create "$work/disk" --size "${disk_mib}MiB" --dedup none --pages-per-block 256 >/dev/null
    "$vellum" disk mount "$work/disk" "$work/mnt" ${1:+--mount-options "$1"} --json >"$run.out" 2>"$run.out.err" & local pid=$!
    started=("$pid")
    await "$pid" "$run.out"
    "$vellum" disk stat "$work/disk" --json >"$run.fresh"
    "$vellum" "${bench[@]}" --engine "$engine" --dir "$work/mnt" >"$run.json" || echo "$engine: no room, or not here" >&2
    kill -INT "$pid"
    wait "$pid"
    started=()
    "$vellum" disk stat "$work/disk" --json >"$run.done"
    "$vellum" disk check "$work/disk" >/dev/null
    rm "$work/disk"
    echo "$engine on ext4${1:+, $1}: done" >&2
}
for engine in leveldb-default leveldb-tuned rocksdb-default rocksdb-tuned vellum; do
    on_ext4 "$engine" ""
    on_ext4 "$engine" discard
done
mkdir "$work/plain"
"$vellum" "${bench[@]}" --engine vellum-flash --flash "${flash_mib}MiB" --dir "$work/plain" >"$work/vellum-flash.json"
mkdir -p "$results"
python3 "$scripts/kv_flash_table.py" "$work" "$results/kv-flash$suffix.json" \
    "crates/vellum/benches/kv_flash.sh $mib $disk_mib${3:+ $3}" "$mib" "$disk_mib" "$value" "$durability"
