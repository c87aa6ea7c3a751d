"""`claims stop`: ask runs to end, and wait for it if wished."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import conf
from django_claims.cli.asking import (
    DONE,
    NONE_SUCH,
    NOT_YET,
    OFF,
    USAGE,
    add_json,
    add_using,
    asked_by,
    duration,
    limits,
    note,
)
from django_claims.cli.words import clean, command_line, say, say_json
from django_claims.clock import ago, clock
from django_claims.handler import claim_backends
from django_claims.leases import Lease, StopFlag
from django_claims.names import checked
from django_claims.stop_flags import request_stop

HELP = "Ask the runs that have these claims now to end; with --keep also all later ones."
FOR_EVER = float("inf")


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="+")
    parser.add_argument("--reason", default="", help="Why: those who are stopped or refused read it.")
    parser.add_argument("--by", default="", help="Who asks (default: your login).")
    parser.add_argument("--keep", action="store_true", help="Refuse later runs too, until clear-stop.")
    parser.add_argument(
        "--for",
        dest="ttl",
        metavar="DURATION",
        type=duration,
        help="With --keep: only for so long (90, 30s, 5m, 2h, 1d).",
    )
    parser.add_argument(
        "--wait", metavar="SECONDS", nargs="?", type=duration, const=FOR_EVER,
        help="Return when the runs have ended, or with 75 after so many seconds. Write it after the names.",
    )  # fmt: skip
    add_using(parser)
    add_json(parser)


def run(command: BaseCommand, options: dict[str, Any]) -> int:
    if options["ttl"] is not None and not options["keep"]:
        raise CommandError("--for is for --keep only: the stop of a single run lives as long as it.", returncode=USAGE)
    names = [checked(name) for name in dict.fromkeys(options["names"])]
    if not conf.enabled():
        raise CommandError(OFF, returncode=NONE_SUCH)
    alias, code = options["using"], DONE
    asked: dict[str, int] = {}
    for name in names:
        flag = request_stop(
            name,
            reason=options["reason"],
            by=asked_by(options["by"]),
            keep=options["keep"],
            ttl=options["ttl"],
            using=alias,
        )
        if flag is None:
            code = NONE_SUCH
            command.stderr.write(command.style.ERROR(f"Nobody has claim {clean(repr(name))}; later runs: --keep."))
            continue
        lease = claim_backends[alias].lease(name)
        if lease is not None and not flag.aims_at(lease.fence):
            lease = None  # the one that was asked has ended
        if lease is not None and lease.holder is not None:
            asked[name] = lease.fence
        if options["json"]:
            say_json(command, flag.as_dict())
        else:
            _print(command, name, alias, flag, lease, options["keep"])
    if code == NONE_SUCH:
        for sentence in limits([alias]):
            note(command, sentence)
    if options["wait"] is not None and asked:
        late = wait_for_end(alias, asked, options["wait"])
        for name in asked:
            if name in late:
                command.stderr.write(command.style.WARNING(f"Goes on still: {clean(name)}; the stop stays asked for."))
            elif not options["json"]:
                say(command, f"Has ended: {clean(name)}")
        code = NOT_YET if late else code
    return code


def _print(command: BaseCommand, name: str, alias: str, flag: StopFlag, lease: Lease | None, wanted_keep: bool) -> None:
    if flag.keep:
        until = f" for {ago(flag_seconds(flag))}" if flag.expires_at else " until cleared"
        already = "" if wanted_keep else " already"
        say(command, f"Kept stopped{already}: {clean(name)},{until} ({command_line('clear-stop', name, using=alias)})")
    if lease is not None and lease.holder is not None:
        say(command, f"Asked to stop: {clean(name)}, held by {clean(lease.holder)}, fence {lease.fence}")
    elif not flag.keep:
        say(command, f"Asked to stop: {clean(name)}, which has ended meanwhile")


def flag_seconds(flag: StopFlag) -> float:
    """Return for how long a flag was set."""
    if flag.expires_at is None or flag.requested_at is None:
        return FOR_EVER
    return (flag.expires_at - flag.requested_at).total_seconds()


def wait_for_end(alias: str, asked: dict[str, int], seconds: float) -> set[str]:
    """Wait until the runs with these fences have ended; return the names of those that have not."""
    ends, pause, left = clock() + seconds, 0.05, set(asked)
    backend = claim_backends[alias]
    while True:
        for name in sorted(left):
            lease = backend.lease(name)
            if lease is None or lease.fence != asked[name] or lease.holder is None:
                left.discard(name)
        if not left or clock() >= ends:
            return left
        time.sleep(max(min(pause, ends - clock()), 0.0))
        pause = min(pause * 1.5, 1.0)
