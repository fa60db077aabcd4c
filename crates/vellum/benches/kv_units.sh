#!/usr/bin/env bash
# What a merge writes and shares, with leaves of 4 and of 16 KiB: on a flash image, and on XFS on a loop-mounted image.
# Usage, as root: crates/vellum/benches/kv_units.sh [MIB] [PERCENT]      Prints a table.
# A store of MIB of records of 1 KiB is merged into one level; PERCENT of them are overwritten, unordered or in runs of
# 20, and `kv compact` merges these. This is done four times; the last merge is shown: MiB written, and MiB shared.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need_root
need losetup mount python3 cargo mkfs.xfs
mib=${1:-64} percent=${2:-4}
build
records "$mib" "$percent" uniform=1 rows=20
truncate -s 16G "$work/image"; mkfs.xfs -q "$work/image"; mkdir "$work/mnt"
mount -o loop,noatime "$work/image" "$work/mnt"
trap 'umount "$work/mnt"; clean_up' EXIT
merge() { # store, keys, options of kv
    local store=$1 keys=$2; shift 2
    case $store in *.flash) "$vellum" kv open "$store" --flash "$((6 * mib))MiB" "$@" >/dev/null ;; esac
    "$vellum" kv load "$store" "$work/all.tsv" "$@" >/dev/null
    "$vellum" kv compact "$store" "$@" >/dev/null
    for turn in 0 1 2 3; do
        "$vellum" kv load "$store" "$work/$keys$turn.tsv" "$@" >/dev/null
        "$vellum" kv compact "$store" "$@" --json >"$work/told"
    done
    rm -r "$store"
    python3 - "$work/told" "$store" "$keys" "$*" <<'PY'
import json, os, sys
told = json.load(open(sys.argv[1]))
mib = lambda number: f"{number / 2**20:.1f}"
shared = told["reuse"]["reflinked_bytes"] + told["reuse"]["linked_bytes"]
where = "flash" if sys.argv[2].endswith("flash") else "XFS"
print(f"{where:6}{sys.argv[3]:9}{mib(told['written_bytes']):>8}{mib(shared):>8}{mib(told['table_bytes']):>8}  {sys.argv[4]}")
PY
}
echo "on    keys      written  shared  tables  options"
for keys in uniform rows; do
    for reusing in "off" "relink" "relink --unit 4KiB" "relink --unit 16KiB"; do
        # shellcheck disable=SC2086
        merge "$work/s.flash" "$keys" --reuse $reusing
    done
    for reusing in "off" "relink --island-min 0" "relink --unit 16KiB --island-min 0" "relink" "relink --unit 16KiB"; do
        # shellcheck disable=SC2086
        merge "$work/mnt/s" "$keys" --reuse $reusing
    done
done
