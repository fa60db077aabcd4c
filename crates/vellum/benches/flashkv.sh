#!/usr/bin/env bash
# The FlashKV paper's figures at the larger scale, which the scoreboard has no time for. Virtual time: the machine need not be quiet.
# Usage: crates/vellum/benches/flashkv.sh [FIGURE...]      Writes docs/results/flashkv-FIGURE.json for each of fig6, fig7, fig8.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
build
figures=("$@")
[ $# -gt 0 ] || figures=(fig6 fig7 fig8)
mkdir -p "$results"
for figure in "${figures[@]}"; do
    # It ends with 1 if a claim does not hold; what it says then is a result, too.
    "$vellum" lab run "flashkv-$figure" --scale paper --json >"$work/$figure.json" || [ $? = 1 ]
    python3 "$(dirname "$0")/flashkv_rows.py" "$figure" "$work/$figure.json" "$results/flashkv-$figure.json"
done
