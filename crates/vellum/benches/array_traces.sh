#!/usr/bin/env bash
# Real block traces through caches of an array, in virtual time: KDD in vellum mode compared with the paper's KDD, LARC
# and write-around, with caches of 5 and 20 % of what a trace touches.
# Usage: crates/vellum/benches/array_traces.sh DIRECTORY    Writes docs/results/array-traces.json, prints its table.
# Traces are read in place. Options of traces known by name are in array_traces_rows.py; others are replayed with
# defaults, and listed as left out if they need an option, or have no writes.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need python3 cargo
directory=${1:?the directory of traces}
build
mkdir -p "$results"
python3 "$(dirname "$0")/array_traces_rows.py" "$vellum" "$directory" "$results/array-traces.json"
