"""
All benchmarks, ours beside its peers, as Markdown.

usage: python -m benchmarks [--quick] [--only PART …] [--plot] [--write]

Starts private servers on free ports (Redis or Valkey; PostgreSQL, MariaDB and memcached where
they are installed), lets the contestants take turns, and prints medians, the middle half of the
rounds, and ratios to a floor of the same run. A peer that is not installed is named as missing.
The peers: see benchmarks/peers.txt.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

from benchmarks._measure import load, machine, versions
from benchmarks._plot import plot
from benchmarks._site import site

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("uncontended", "handover", "holds", "growth", "stops")
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: written by python -m benchmarks --write -->", "<!-- end of results -->"
PEERS = "python-redis-lock pottery portalocker sherlock mithril-locks filelock django-pglock django-db-mutex"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="about a minute in all, and rough")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--plot", action="store_true", help="draw docs/images/*.svg (needs matplotlib)")
    parser.add_argument("--write", action="store_true", help="put the results into docs/benchmarks.md")
    given = parser.parse_args()
    load_before = load()
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        print(text, flush=True)

    with site(whole="uncontended" in given.only or "handover" in given.only) as there:
        for part in given.only:
            began, at = time.monotonic(), load()
            tables = []
            for table in importlib.import_module(f"benchmarks.{part}").run(there, given.quick):
                tables.append(table)
                say(table.markdown())
            print(f"({part}: {time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
            say(f"Load average before and after this part: {at}; {load()}.\n")
            if given.plot and plot(ROOT / "docs" / "images" / f"{part}.svg", tables):
                say(f"![The same as a picture](images/{part}.svg)\n")
        say("### The run\n")
        say(machine(there.servers, load_before))
        say(f"- peers: {versions(*PEERS.split())}")
        for each in there.missing:
            say(f"- missing: {each}")
        if given.quick:
            say("- `--quick`: a rough run")
    if given.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(said) + f"\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
