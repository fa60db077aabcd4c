#!/usr/bin/env bash
# Compaction on a real XFS and a real btrfs on a loop-mounted image, with and without clones: sectors that reach the
# block device, time, and the speed of reading the result.
# Usage, as root: crates/vellum/benches/kv_reflink.sh [MIB] [PERCENT]      Writes docs/results/kv-reflink.json, prints its table.
# A store of MIB of records of 1 KiB is merged into one level; PERCENT of them are overwritten, unordered, and `kv
# compact` merges these with the level below. This is done four times; the last merge is measured, as one of levels of
# such a ratio, in a store with earlier merges. Then the stores are read in turn, nine times.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need_root
need losetup mount python3 cargo
mib=${1:-256} percent=${2:-10}
build
scripts=$(dirname "$0")
records "$mib" "$percent" some=1
store=$work/mnt/store loop=
mkdir -p "$work/mnt"
sectors() { awk '{ print $7 }' "/sys/block/${loop#/dev/}/stat"; }
seconds() { python3 -c 'import sys; print(f"{float(sys.argv[2]) - float(sys.argv[1]):.2f}")' "$1" "$(date +%s.%N)"; }
attach() { loop=$(losetup -f --show "$1") && mount -o noatime "$loop" "$work/mnt"; }
detach() { umount "$work/mnt" && losetup -d "$loop"; }
merge() { # file system, label, options of kv
    local kind=$1 label=$2 image=$work/image.$1.$2 before start took; shift 2
    truncate -s 64G "$image" # sparse: a small btrfs commits again and again for lack of space for metadata
    "mkfs.$kind" -q "$image" >/dev/null
    attach "$image"
    "$vellum" kv load "$store" "$work/all.tsv" --memtable 8MiB "$@" >/dev/null
    "$vellum" kv compact "$store" "$@" >/dev/null
    for turn in 0 1 2 3; do
        "$vellum" kv load "$store" "$work/some$turn.tsv" --memtable 64MiB "$@" >/dev/null
        [ "$turn" = 3 ] || "$vellum" kv compact "$store" "$@" >/dev/null
    done
    umount "$work/mnt"; sync; echo 3 >/proc/sys/vm/drop_caches; mount -o noatime "$loop" "$work/mnt"
    before=$(sectors) start=$(date +%s.%N)
    "$vellum" kv compact "$store" "$@" --json >"$work/told.$kind.$label"
    umount "$work/mnt"
    took=$(seconds "$start")
    echo "$kind $label $((($(sectors) - before) / 2)) $took" >>"$work/merges"
    losetup -d "$loop"
    echo "$kind, $label: merged" >&2
}
read_again() { # file system, label
    local start
    attach "$work/image.$1.$2"; sync; echo 3 >/proc/sys/vm/drop_caches
    start=$(date +%s.%N)
    "$vellum" kv dump "$store" --output "$work/dumped" >/dev/null
    echo "$1 $2 $(seconds "$start") $(sha256sum <"$work/dumped" | cut -c1-16)" >>"$work/reads"
    rm "$work/dumped"
    detach
}
for kind in xfs btrfs; do
    command -v "mkfs.$kind" >/dev/null && { grep -qw "$kind" /proc/filesystems || modprobe "$kind" 2>/dev/null; } ||
        { echo "$kind is not here" >&2; continue; }
    islands="0KiB 8KiB 16KiB 32KiB"
    merge "$kind" off --reuse off
    for least in $islands; do merge "$kind" "$least" --reuse relink --island-min "$least"; done
    for round in 1 2 3 4 5 6 7 8 9; do
        for label in off $islands; do read_again "$kind" "$label"; done
        echo "$kind: read, round $round of 9" >&2
    done
    rm "$work"/image.*
done
[ -s "$work/merges" ] || { echo "skipped: neither file system is here"; exit 0; }
mkdir -p "$results"
python3 "$scripts/kv_reflink_table.py" "$work" "$results/kv-reflink.json" "crates/vellum/benches/kv_reflink.sh $mib $percent" "$mib" "$percent"
