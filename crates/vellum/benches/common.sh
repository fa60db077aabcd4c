# What the benches of this directory share; sourced, not run. Needs bash.
# Sets `root` (the workspace), `vellum` (the release binary) and `work` (a directory, gone afterwards).

need() { # tools
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 0; }
    done
}
need_root() {
    [ "$(id -u)" = 0 ] && [ -e /dev/fuse ] && [ -e /dev/loop-control ] ||
        { echo "skipped: needs root, /dev/fuse and loop devices"; exit 0; }
}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
results=$root/docs/results
build() {
    (cd "$root" && cargo build -q --release -p vellum --bin vellum)
    vellum=$(cd "$root" && cargo metadata --no-deps --format-version 1 |
        python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')/release/vellum
}
# Flash images in memory, if there is room: the disk of this machine is not what is measured.
work=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" vellum-bench.XXXXXX)
started=()
clean_up() {
    for pid in "${started[@]}"; do kill -INT "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT
# Waits until a server has said that it is ready (its output is in a file), or shows what it said.
await() { # pid, output
    until grep -q '"event":"ready"' "$2" 2>/dev/null; do
        kill -0 "$1" 2>/dev/null || { cat "$2" "$2.err" >&2; return 1; }
        sleep 0.05
    done
}
