"""Rounds of fio on arrays side by side, as a table and as rows of docs/results."""

import json
import statistics


def rates(directory, kind, which, rounds, field):
    """What fio says of the writes of each round."""
    return [write_of(f"{directory}/{kind}.{which}.{n + 1}.json")[field] for n in range(int(rounds))]


def write_of(path):
    with open(path) as file:
        text = file.read()
    return json.loads(text[text.index("{"):])["jobs"][0]["write"]


def row(ours, bare, least, **words):
    """Ours beside the same array without, which holds from a ratio of `least` on; `words` are the row's other fields."""
    ratios = [ours / bare for ours, bare in zip(ours, bare)]
    ratio = statistics.median(ratios)
    shown = f"{ratio:.2f} x (rounds {min(ratios):.2f} to {max(ratios):.2f})"
    fields = {"ours": shown, "holds": ratio >= least, **words}
    order = ("claim", "target", "ours", "command", "holds", "why")
    return {name: fields[name] for name in order}


def show(row, *what):
    print("holds " if row["holds"] else "MISSED", *what)


def write(result, rows):
    with open(result, "w") as file:
        json.dump(rows, file, indent=1)
        file.write("\n")
