#!/usr/bin/env bash
# A key-value store of 10 GiB whose process is killed while filling it: time until it is open again.
# Usage: crates/vellum/benches/kv_open.sh [ROUNDS] [GIB] [VALUE]      Writes docs/results/kv-open.json, prints its table.
# Loads GIB of incompressible records with values of VALUE bytes, unordered; then in rounds: overwrite some of them for
# some seconds, kill -9, drop the kernel's caches (if root), `vellum kv open`. Timed from exec until exit, which
# includes closing. The store is made in VELLUM_BENCH_DIR (default: beside the binary), and takes twice GIB there.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
rounds=${1:-5} gib=${2:-10} value=${3:-1024}
build
store=$(mktemp -d -p "${VELLUM_BENCH_DIR:-$(dirname "$vellum")}" vellum-bench.XXXXXX)
trap 'clean_up; rm -rf "$store"' EXIT
mkdir -p "$results"
python3 "$(dirname "$0")/kv_open_rounds.py" "$vellum" "$store/s" "$rounds" "$gib" "$value" "$results/kv-open.json" "$(busy)"
