"""The workloads of ext4.sh and array_recorded.sh, on a mounted file system: ext4_workload.py NAME DIR. Deterministic but for the files of
the host that `copy` and `git` take."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys

MIB = 1 << 20


def host_files(limit_bytes):
    """Some hundred real files, small and middling, the same on every call."""
    taken = 0
    for root in ("/usr/lib/python3", "/usr/share", "/usr/include", "/usr/lib"):
        for path, dirs, names in os.walk(root):
            dirs.sort()
            for name in sorted(names):
                file = os.path.join(path, name)
                if os.path.islink(file) or not os.path.isfile(file):
                    continue
                size = os.path.getsize(file)
                if 0 < size <= 2 * MIB and os.access(file, os.R_OK):
                    taken += size
                    if taken > limit_bytes:
                        return
                    yield file


def copy_in(to, limit_bytes):
    for file in host_files(limit_bytes):
        target = to + file
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(file, target)


def copy(to):
    """A tree of real files, copied, then a third of it removed."""
    copy_in(to, 48 * MIB)
    os.sync()
    for i, (path, _, names) in enumerate(os.walk(to)):
        for name in names if i % 3 == 0 else []:
            os.unlink(os.path.join(path, name))


def git(to):
    """A repository: commits that add and change files, then a repack."""
    tree = os.path.join(to, "repo")
    os.mkdir(tree)
    rng = random.Random(2)

    def run(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0", "-c", "safe.directory=*"]
        subprocess.run(["git", *who, *words], cwd=tree, check=True, stdout=subprocess.DEVNULL)

    run("init", "-q")
    files = list(host_files(10 * MIB))
    for commit in range(20):
        for file in files[commit :: 20]:
            target = os.path.join(tree, file.lstrip("/"))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(file, target)
        for file in rng.sample(files[: commit * 20 or 1], min(10, commit * 20 or 1)):
            target = os.path.join(tree, file.lstrip("/"))
            if os.path.exists(target):
                with open(target, "ab") as out:
                    out.write(b"changed in commit %d\n" % commit)
        run("add", "-A")
        run("commit", "-q", "-m", f"commit {commit}")
    run("gc", "-q")


def sqlite(to):
    """Rows inserted, changed and deleted in many small transactions, with a rollback journal and with a WAL."""
    for mode, transactions in (("delete", 400), ("wal", 800)):
        rng = random.Random(3)
        db = sqlite3.connect(os.path.join(to, f"{mode}.db"), isolation_level=None)
        db.execute(f"pragma journal_mode={mode}")
        db.execute("pragma synchronous=full")
        db.execute("create table t (k integer primary key, v blob, at real)")
        db.execute("create index by_at on t (at)")
        for number in range(transactions):
            db.execute("begin")
            for row in range(5):
                db.execute("insert into t values (?, ?, ?)", (number * 5 + row, rng.randbytes(300), rng.random()))
            db.execute("update t set at = at + 1 where k = ?", (rng.randrange(number * 5 + 1),))
            if number % 3 == 0:
                db.execute("delete from t where k = ?", (rng.randrange(number * 5 + 1),))
            db.execute("commit")
        db.close()


def bank(to):
    """300,000 accounts, then 10,000 transfers: a balance changed, a line of history added, half with a rollback journal,
    half with a WAL."""
    rng = random.Random(7)
    db = sqlite3.connect(os.path.join(to, "bank.db"), isolation_level=None)
    db.execute("pragma synchronous=normal")
    db.execute("create table accounts (id integer primary key, branch int, balance int, filler text)")
    db.execute("create table history (id integer primary key, account int, amount int, at text, note text)")
    db.execute("create index of_account on history (account)")
    db.execute("begin")
    rows = ((i, i % 100, 0, rng.randbytes(42).hex()) for i in range(300_000))
    db.executemany("insert into accounts values (?, ?, ?, ?)", rows)
    db.execute("commit")
    for number in range(10_000):
        if number % 5_000 == 0:
            db.execute(f"pragma journal_mode={('delete', 'wal')[number // 5_000]}")
        # A third of them at random, the others mostly among the first.
        account = int(300_000 * rng.random() ** (1 if number % 3 == 0 else 6))
        amount = rng.randrange(-1000, 1000)
        at = f"2023-11-{1 + number // 400:02d} {number % 400 // 60:02d}:{number % 60:02d}"
        db.execute("begin")
        db.execute("update accounts set balance = balance + ? where id = ?", (amount, account))
        db.execute(
            "insert into history (account, amount, at, note) values (?, ?, ?, ?)",
            (account, amount, at, f"transfer {number} of {account}"),
        )
        db.execute("commit")
    db.close()


def fsync(to):
    """6,000 hot overwrites of 4 KiB in a file of 8 MiB, fdatasync after each fourth."""
    rng = random.Random(4)
    with open(os.path.join(to, "hot"), "wb", buffering=0) as out:
        for _ in range(8):
            out.write(rng.randbytes(MIB))
        os.fsync(out.fileno())
        for number in range(6000):
            os.pwrite(out.fileno(), rng.randbytes(4096), rng.randrange(2048) * 4096)
            if number % 4 == 3:
                os.fdatasync(out.fileno())


def metadata(to):
    """8,000 files made, then deleted, in 40 directories, with a sync now and then."""
    for directory in range(40):
        os.mkdir(os.path.join(to, str(directory)))
    for number in range(8000):
        with open(os.path.join(to, str(number % 40), f"file-{number}"), "wb"):
            pass
        if number % 1000 == 999:
            os.sync()
    for number in range(8000):
        os.unlink(os.path.join(to, str(number % 40), f"file-{number}"))
        if number % 1000 == 999:
            os.sync()


def sequential(to):
    """One file of 120 MB, written through."""
    rng = random.Random(6)
    with open(os.path.join(to, "big"), "wb", buffering=0) as out:
        for _ in range(120):
            out.write(rng.randbytes(1000 * 1000))
        os.fsync(out.fileno())


if __name__ == "__main__":
    {f.__name__: f for f in (copy, git, sqlite, bank, fsync, metadata, sequential)}[sys.argv[1]](sys.argv[2])
    os.sync()
