"""The rounds of open.sh: open_rounds.py VELLUM WORK ROUNDS FILL RESULT BUSY"""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time

TARGET_SECONDS = 2.0


def serve(vellum, work):
    """Starts the server; returns it, and the seconds until it greets a client."""
    path = os.path.join(work, "socket")
    started = time.monotonic()
    with open(os.path.join(work, "serve.out"), "w") as out:
        command = [vellum, "disk", "serve", os.path.join(work, "disk"), "--nbd", f"unix:{path}"]
        server = subprocess.Popen(command, stdout=out, stderr=out)
    while True:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(path)
            if client.recv(8) == b"NBDMAGIC":
                return server, time.monotonic() - started
        except OSError:
            if server.poll() is not None:
                sys.exit(open(os.path.join(work, "serve.out")).read())
            time.sleep(0.002)
        finally:
            client.close()


def overwrite(work, *options):
    uri = f"--uri=nbd+unix:///?socket={work}/socket"
    how = ["--rw=randwrite", "--bs=4k", "--iodepth=32", "--size=64g", "--norandommap", "--fsync=256"]
    how += ["--allrandrepeat=0", "--randrepeat=0"]  # otherwise every run writes what the disk already has
    command = ["fio", "--name=load", "--ioengine=nbd", uri, *how, *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def peak_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))



def modelled(vellum, work, preset):
    example = os.path.join(os.path.dirname(vellum), "examples", "modelled_open")
    done = subprocess.run([example, os.path.join(work, "disk"), preset], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    vellum, work, rounds, fill, result, busy = sys.argv[1:]
    server, fresh = serve(vellum, work)
    if overwrite(work, f"--io_size={fill}").wait() != 0:
        sys.exit("fio did not fill the disk")
    times, memory = [], []
    for number in range(int(rounds)):
        load = overwrite(work, "--time_based", "--runtime=600")
        time.sleep(4 + 1.7 * number)
        if load.poll() is not None:
            sys.exit("fio ended before the server was killed")
        server.kill()
        server.wait()
        load.send_signal(signal.SIGKILL)
        load.wait()
        if number + 1 == int(rounds):
            models = [modelled(vellum, work, preset) for preset in ("tlc-modern", "intel-750")]
        server, seconds = serve(vellum, work)
        times.append(seconds)
        memory.append(peak_mib(server.pid))
        mapped = os.stat(os.path.join(work, "disk")).st_blocks * 512 / (1 << 30)
        print(f"round {number}: {seconds:.3f} s, {memory[-1]:.0f} MiB, image of {mapped:.1f} GiB", flush=True)
    server.send_signal(signal.SIGINT)
    server.wait()
    check = subprocess.run([vellum, "disk", "check", os.path.join(work, "disk")], stdout=subprocess.DEVNULL)
    worst = max(times)
    model = ", ".join(f"{m['busy_ms'] / 1e3:.2f} s of {m['preset']}" for m in models)
    row = {
        "claim": "a disk of 64 GiB, killed with -9 under random overwrites: time until it serves again",
        "target": f"under {TARGET_SECONDS:.0f} s",
        "ours": f"{statistics.median(times):.2f} s (rounds {min(times):.2f} to {worst:.2f})",
        "command": f"crates/vellum/benches/open.sh {rounds} {fill}",
        "holds": worst < TARGET_SECONDS and check.returncode == 0,
        "why": f"{rounds} rounds after {fill} of random 4 KiB writes, image of {mapped:.1f} GiB in memory (a blank disk of that "
        f"size: {fresh:.2f} s); {max(memory):.0f} MiB of memory at most; the flash of a modelled drive with "
        f"the image's 8 dies is busy for {model}, reading {models[0]['pages_read']} pages (a drive has more dies); `disk check` afterwards {'finds nothing' if check.returncode == 0 else 'FINDS DAMAGE'}; "
        f"{os.cpu_count()} cores, {busy} % busy before",
    }
    print(f"{'holds ' if row['holds'] else 'MISSED'} {row['ours']}: {row['why']}")
    with open(result, "w") as file:
        json.dump([row], file, indent=1)
        file.write("\n")


main()
