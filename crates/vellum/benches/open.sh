#!/usr/bin/env bash
# A disk of 64 GiB whose server is killed under load: time until it serves again.
# Usage: crates/vellum/benches/open.sh [ROUNDS] [FILL]      Writes docs/results/open.json, prints its table.
# FILL (6g) of random 4 KiB overwrites over the whole disk, then rounds: serve, random overwrites for some seconds,
# kill -9, serve again. Timed from exec until a client is greeted. The image is sparse, in memory, and its pages
# stay there; how long a drive's flash would be busy is modelled with the last round's image.
set -euo pipefail
. "$(dirname "$0")/common.sh"
need fio python3 cargo
rounds=${1:-5} fill=${2:-6g}
build
(cd "$root" && cargo build -q --release -p vellum-lab --example modelled_open)
"$vellum" disk create "$work/disk" --size 64GiB >/dev/null
python3 "$(dirname "$0")/open_rounds.py" "$vellum" "$work" "$rounds" "$fill" "$results/open.json" "$(busy)"
