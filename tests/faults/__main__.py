"""See `python -m tests.faults --help`."""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from tests.faults.nemeses import NEMESES
    from tests.faults.soak import nemeses_of, soak
    from tests.faults.stores import STORES

    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Try to break claims on a store.")
    parser.add_argument("--store", choices=sorted(STORES), required=True)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--nemesis", default="all", help=f"all, or some of: {', '.join(sorted(NEMESES))}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=6)
    options = parser.parse_args()
    if problem := STORES[options.store].missing():
        parser.error(problem)
    chosen = nemeses_of(options.store, options.nemesis)
    if unknown := [name for name in chosen if name not in NEMESES]:
        parser.error(f"no such nemesis: {', '.join(unknown)}")
    report = soak(options.store, minutes=options.minutes, nemeses=chosen, seed=options.seed, workers=options.workers)
    print(report.table())
    for path in report.kept:
        print(f"history: {path}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
