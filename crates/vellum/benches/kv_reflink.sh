#!/usr/bin/env bash
# Compaction on a real XFS and a real btrfs on a loop-mounted image, with and without clones: sectors that reach the block device,
# time, and how fast the result is read.
# Usage, as root: crates/vellum/benches/kv_reflink.sh [MIB] [PERCENT]      Writes docs/results/kv-reflink.json, prints its table.
# A store of MIB of records of 1 KiB is merged into one level; PERCENT of them are set anew, in no order, and `kv compact` merges these
# with the level below. That is done four times; the last of these merges is what is measured: one of levels of such a ratio, of a
# store that has seen others.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need_root
need losetup mount python3 cargo
mib=${1:-256} percent=${2:-10}
build
scripts=$(dirname "$0")
python3 - "$work" "$mib" "$percent" <<'PY'
import base64, random, sys
work, mib, percent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
count, rng = mib * 1024, random.Random(1)
def write(name, keys):
    with open(f"{work}/{name}", "w") as file:
        for key in keys:
            file.write(f"{key:08d}\t{base64.b64encode(rng.randbytes(762)).decode()}\n")
write("all.tsv", rng.sample(range(count), count))
for turn in range(4):
    write(f"some{turn}.tsv", rng.sample(range(count), count * percent // 100))
PY
sectors() { awk '{ print $7 }' "/sys/block/${loop#/dev/}/stat"; }
seconds() { python3 -c 'import sys; print(f"{float(sys.argv[2]) - float(sys.argv[1]):.2f}")' "$1" "$(date +%s.%N)"; }
remount() { umount "$work/mnt"; sync; echo 3 >/proc/sys/vm/drop_caches; mount -o noatime "$loop" "$work/mnt"; }
one() { # file system, label, options of kv
    local kind=$1 label=$2 store=$work/mnt/store before start told; shift 2
    truncate -s 64G "$work/image" # sparse: a btrfs that is small commits again and again for want of room for metadata
    loop=$(losetup -f --show "$work/image")
    "mkfs.$kind" -q "$loop" >/dev/null
    mkdir -p "$work/mnt"
    mount -o noatime "$loop" "$work/mnt"
    "$vellum" kv load "$store" "$work/all.tsv" --memtable 8MiB "$@" >/dev/null
    "$vellum" kv compact "$store" "$@" >/dev/null
    for turn in 0 1 2; do
        "$vellum" kv load "$store" "$work/some$turn.tsv" --memtable 64MiB "$@" >/dev/null
        "$vellum" kv compact "$store" "$@" >/dev/null
    done
    "$vellum" kv load "$store" "$work/some3.tsv" --memtable 64MiB "$@" >/dev/null
    remount
    before=$(sectors) start=$(date +%s.%N)
    "$vellum" kv compact "$store" "$@" --json >"$work/told"
    umount "$work/mnt"
    local took written read
    took=$(seconds "$start") written=$((($(sectors) - before) / 2))
    mount -o noatime "$loop" "$work/mnt"
    for _ in 1 2 3 4 5; do
        remount
        start=$(date +%s.%N)
        "$vellum" kv dump "$store" --output "$work/dumped" >/dev/null
        seconds "$start"
        mv "$work/dumped" "$work/last"
    done | sort -n >"$work/reads"
    read=$(sed -n 3p "$work/reads")
    local sum
    sum=$(sha256sum <"$work/last" | cut -c1-16)
    rm "$work/last"
    umount "$work/mnt"
    losetup -d "$loop"
    rm "$work/image"
    python3 - "$kind" "$label" "$written" "$took" "$read" "$sum" "$work/told" >>"$work/rows" <<'PY'
import json, sys
kind, label, written, took, read, total, told = sys.argv[1:]
told = json.load(open(told))
print(json.dumps(dict(kind=kind, label=label, written_kib=int(written), seconds=float(took), read_seconds=float(read), sum=total,
    table_bytes=told["table_bytes"], reuse=told["reuse"])))
PY
    echo "$kind, $label: done" >&2
}
for kind in xfs btrfs; do
    command -v "mkfs.$kind" >/dev/null && { grep -qw "$kind" /proc/filesystems || modprobe "$kind" 2>/dev/null; } ||
        { echo "$kind is not here" >&2; continue; }
    one "$kind" off --reuse off
    for least in 0KiB 8KiB 16KiB 32KiB; do one "$kind" "$least" --reuse relink --island-min "$least"; done
done
[ -s "$work/rows" ] || { echo "skipped: neither file system is here"; exit 0; }
mkdir -p "$results"
python3 "$scripts/kv_reflink_table.py" "$work/rows" "$results/kv-reflink.json" "crates/vellum/benches/kv_reflink.sh $mib $percent" "$mib" "$percent"
