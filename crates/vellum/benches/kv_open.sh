#!/usr/bin/env bash
# A key-value store of 10 GiB whose process is killed while it fills: how long until it is open again.
# Usage: crates/vellum/benches/kv_open.sh [ROUNDS] [GIB] [VALUE]      Writes docs/results/kv-open.json, prints its table.
# GIB of records with values of VALUE bytes in no order that nothing compresses, then rounds: put some of them anew for some seconds,
# kill -9, drop what the kernel holds in memory (if root), `vellum kv open`. Timed from exec until exit, so closing is part of it.
# VELLUM_BENCH_DIR says where the store is made (beside the binary); it takes twice GIB there.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
rounds=${1:-5} gib=${2:-10} value=${3:-1024}
build
store=$(mktemp -d -p "${VELLUM_BENCH_DIR:-$(dirname "$vellum")}" vellum-bench.XXXXXX)
trap 'clean_up; rm -rf "$store"' EXIT
mkdir -p "$results"
python3 "$(dirname "$0")/kv_open_rounds.py" "$vellum" "$store/s" "$rounds" "$gib" "$value" "$results/kv-open.json" "$(busy)"
