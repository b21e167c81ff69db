"""Two builds of `fovea` on the rows of `fovea bench kernels`, in turns.

    python3 bench/in_turns.py OLD NEW [--only TEXT...] [--without TEXT...] [--rounds 5] [--seconds 0.2] [--json FILE]

For each row that both builds have, OLD and NEW run one after the other, in an order that changes with each round, so
that both meet the same state of the machine. A build's time is the lower quartile of its best round, because a
neighbour on the machine only ever adds time. A row's ratio is the time of NEW over that of OLD: above 1, NEW is slower.
Rows above --again are measured a second time, with twice the rounds, at the end. A row that no kernel of this machine
computes is named and left out.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys


def rows_of(fovea: str) -> list[str]:
    listed = subprocess.run([fovea, "bench", "kernels", "--list"], capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


class Absent(Exception):
    """A build has no kernel for a row on this machine."""


def milliseconds(fovea: str, row: str, arguments: argparse.Namespace) -> float:
    command = [fovea, "bench", "kernels", "--only", row, "--rivals", "none", "--rounds", "1", "--json", "-"]
    command += ["--probe-seconds", "0.0005", "--seconds", str(arguments.seconds)]
    command += ["--cpu-threads", str(arguments.threads)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    (found,) = [r for r in json.loads(ran.stdout)["rows"] if r["name"] == row]
    if "absent" in found:
        raise Absent(found["absent"])
    return float(found["seconds"]["lower_quartile"]) * 1e3


def ratio(row: str, rounds: int, arguments: argparse.Namespace) -> tuple[float, float]:
    """(the time of OLD in milliseconds, the time of NEW over it)"""
    times: dict[str, list[float]] = {arguments.old: [], arguments.new: []}
    for number in range(rounds):
        builds = [arguments.old, arguments.new]
        for fovea in builds if number % 2 == 0 else reversed(builds):
            times[fovea].append(milliseconds(fovea, row, arguments))
    old, new = min(times[arguments.old]), min(times[arguments.new])
    return old, new / old


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    parser.add_argument("--again", type=float, default=1.05)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    common = set(rows_of(arguments.old)) & set(rows_of(arguments.new))
    rows = [
        row
        for row in rows_of(arguments.new)
        if row in common
        and any(text in row for text in arguments.only)
        and not any(text in row for text in arguments.without)
    ]
    found = {}
    for row in rows:
        try:
            old, found[row] = ratio(row, arguments.rounds, arguments)
        except Absent as absent:
            print(f"     -  {row}: {absent}", flush=True)
            continue
        print(f"{found[row]:6.3f}  {old:10.4f} ms  {row}", flush=True)
    for row in [row for row in rows if found.get(row, 0.0) > arguments.again]:
        old, found[row] = ratio(row, 2 * arguments.rounds, arguments)
        print(f"{found[row]:6.3f}  {old:10.4f} ms  {row}, again", flush=True)
    mean = math.exp(statistics.fmean(math.log(x) for x in found.values())) if found else math.nan
    print(f"{mean:6.3f}  geometric mean of {len(found)} rows; the largest is {max(found.values(), default=math.nan):.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"ratios": found, "geometric_mean": mean}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
