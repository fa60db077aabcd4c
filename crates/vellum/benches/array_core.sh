#!/usr/bin/env bash
# Processor cost of an array: parity, deltas, and the counter of cache policies, each on one core.
# Usage: crates/vellum/benches/array_core.sh      Writes docs/results/array-core.json.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
cd "$root"
cargo bench -q -p vellum-codes --bench parity --no-run
cargo bench -q -p vellum-lab --bench array_cache --no-run
idle=$(busy)
cargo bench -q -p vellum-codes --bench parity >"$work/parity"
cargo bench -q -p vellum-lab --bench array_cache >"$work/array_cache"
mkdir -p "$results"
python3 "$(dirname "${BASH_SOURCE[0]}")/array_core_rows.py" "$work" "$results/array-core.json" "$idle"
