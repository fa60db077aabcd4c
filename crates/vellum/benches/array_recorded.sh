#!/usr/bin/env bash
# Effect of contents on a replay of an array's caches: a real ext4 is recorded with all bytes, and replayed with deltas
# of these, with the mixture measured on page images, and with the paper's 25 % and 12 %.
# Usage, as root: crates/vellum/benches/array_recorded.sh [WORKLOAD...]      Prints its table.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need_root
need git mkfs.ext4 losetup python3 cargo
build
workloads=("$@")
[ $# -gt 0 ] || workloads=(bank sqlite git metadata)
scripts=$(dirname "$0")

for workload in "${workloads[@]}"; do
    run=$work/$workload
    "$vellum" disk record --ram 384MiB --data ordered --mount "$work/mnt" --to "$run.vtrace" --bytes --json \
        >"$run.out" 2>"$run.err" & pid=$!
    started=("$pid")
    await "$pid" "$run.out"
    python3 "$scripts/ext4_workload.py" "$workload" "$work/mnt"
    kill -INT "$pid"
    wait "$pid"
    started=()
    for deltas in recorded measured gaussian:25% gaussian:12%; do
        "$vellum" replay "$run.vtrace" --array raid5 --cache 20% --compare wt,kdd-12,kdd-nvram,kdd \
            --deltas "$deltas" --json >"$run.$deltas" 2>>"$run.err"
    done
    rm "$run.vtrace"
done
python3 "$scripts/array_recorded_table.py" "$work" "${workloads[@]}"
