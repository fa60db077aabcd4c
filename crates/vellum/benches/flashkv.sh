#!/usr/bin/env bash
# The FlashKV paper's figures at the larger scale, which takes too long for the scoreboard. Virtual time: the machine
# need not be idle.
# Usage: crates/vellum/benches/flashkv.sh [FIGURE...]      Writes docs/results/flashkv-FIGURE.json for each of fig6, fig7, fig8.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
build
figures=("$@")
[ $# -gt 0 ] || figures=(fig6 fig7 fig8)
mkdir -p "$results"
for figure in "${figures[@]}"; do
    # Exit code 1 means that a claim does not hold; its output is a result nevertheless.
    "$vellum" lab run "flashkv-$figure" --scale paper --json >"$work/$figure.json" || [ $? = 1 ]
    python3 "$(dirname "$0")/flashkv_rows.py" "$figure" "$work/$figure.json" "$results/flashkv-$figure.json"
done
