#!/usr/bin/env bash
# A real ext4 on a Vellum disk: home writes removed, and flash programs relative to data=ordered and to an ordinary SSD.
# Usage, as root: crates/vellum/benches/ext4.sh [WORKLOAD...]      Writes docs/results/ext4.json, prints its table.
# For every journal size and workload in turn: data=journal and data=ordered on a disk with `journal`
# (recorded), and both on one with `none`. Then the records are replayed in every mode, which counts what the
# ledger of a live disk cannot know: which of the sectors that were not programmed were home writes.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need_root
need git mkfs.ext4 losetup python3 cargo
build
workloads=("$@")
[ $# -gt 0 ] || workloads=(copy git sqlite fsync metadata sequential)
size=384MiB
modes=none,strong,woj-paper,journal,journal-nvram
scripts=$(dirname "$0")

live() { # run, what to do with the disk and its options...
    local run=$1; shift
    "$vellum" disk "$@" --json >"$run.out" 2>"$run.out.err" & local pid=$!
    started=("$pid")
    await "$pid" "$run.out"
    "$vellum" disk stat "$work/disk" --json >"$run.fresh"
    python3 "$scripts/ext4_workload.py" "$workload" "$work/mnt"
    kill -INT "$pid"
    wait "$pid"
    started=()
    "$vellum" disk stat "$work/disk" --json >"$run.done"
    "$vellum" disk check "$work/disk" >/dev/null
    rm "$work/disk"
}
for journal in 16 64; do # MiB; 16 is what mkfs.ext4 chooses for this size
    mkfs=(--mkfs-options "-J size=$journal")
    for workload in "${workloads[@]}"; do
        for data in ordered journal; do
            run=$work/$workload.$journal.$data
            how=(--data "$data" "${mkfs[@]}")
            "$vellum" disk create "$work/disk" --size $size --dedup journal >/dev/null
            live "$run.journal" record "$work/disk" "${how[@]}" --mount "$work/mnt" --to "$run.vtrace"
            "$vellum" disk create "$work/disk" --size $size --dedup none >/dev/null
            live "$run.none" mount "$work/disk" "$work/mnt" "${how[@]}"
            "$vellum" replay "$run.vtrace" --compare $modes --json >"$run.replay" 2>/dev/null
            rm "$run.vtrace"
            echo "$workload, journal $journal, data=$data: done" >&2
        done
    done
done
mkdir -p "$results"
python3 "$scripts/ext4_table.py" "$work" "$results/ext4.json" "${workloads[@]}"
