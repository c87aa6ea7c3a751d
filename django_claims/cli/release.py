"""`claims release`: end a run's lease by force, for holders that are beyond asking."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import conf
from django_claims.cli.asking import DONE, FOUND, NONE_SUCH, NOT_YET, OFF, USAGE, add_json, add_using, asked_by
from django_claims.cli.words import clean, command_line, say, say_json
from django_claims.handler import claim_backends
from django_claims.leases import Lease
from django_claims.names import checked
from django_claims.operations import force_release

HELP = "Break the claim of the run with this fence by force. Two may run at once then; ask it to stop first."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--fence", metavar="N", type=int, required=True, help="Of the run to break, as 'claims show' says; no other is."
    )
    parser.add_argument("--yes", action="store_true", help="Do not ask.")
    parser.add_argument("--by", default="", help="Who does it (default: your login); it is logged.")
    add_using(parser)
    add_json(parser)


def run(command: BaseCommand, options: dict[str, Any]) -> int:
    name, fence, alias = checked(options["name"]), options["fence"], options["using"]
    if not conf.enabled():
        raise CommandError(OFF, returncode=NONE_SUCH)
    lease = found(name, fence, alias)
    if not options["yes"] and not _is_confirmed(command, name, alias, lease):
        command.stderr.write("Nothing was changed.")
        return FOUND
    if not force_release(name, fence=fence, by=asked_by(options["by"]), using=alias):
        found(name, fence, alias)  # says what has happened
        raise CommandError(f"Claim {clean(repr(name))} changed meanwhile; look again.", returncode=NOT_YET)
    if options["json"]:
        say_json(command, lease.as_dict())
    else:
        say(
            command,
            f"Released: {clean(name)}, fence {fence}. Its holder, if it lives, is told; it stops when it looks.",
        )
    return DONE


def found(name: str, fence: int, alias: str) -> Lease:
    """Return the lease of the run with that fence, or raise CommandError that says what there is."""
    lease = claim_backends[alias].lease(name)
    if lease is None:
        raise CommandError(f"Nobody has claim {clean(repr(name))}: there is nothing to release.", returncode=NONE_SUCH)
    if lease.fence != fence:
        raise CommandError(
            f"Another run has claim {clean(repr(name))} now, with fence {lease.fence}; nothing was changed. "
            f"Look at it: {command_line('show', name, using=alias)}",
            returncode=NOT_YET,
        )
    return lease


def _is_confirmed(command: BaseCommand, name: str, alias: str, lease: Lease) -> bool:
    if not sys.stdin.isatty():
        raise CommandError(
            "This needs a terminal to ask on, or --yes: if the holder is still at work, two may run at once.",
            returncode=USAGE,
        )
    say(command, clean(lease.sentence()))
    say(
        command,
        command.style.WARNING(
            "If it is still at work, two may run at once from now on, until it looks.\n"
            f"To ask it to end instead: {command_line('stop', name, using=alias)}"
        ),
    )
    try:
        return input("Release it by force? Type 'yes': ").strip().lower() == "yes"
    except (EOFError, KeyboardInterrupt):
        return False
