"""`claims list`: who holds what now."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_claims import conf
from django_claims.cli.asking import DONE, OFF, UNAVAILABLE, add_json, add_using, limits, note
from django_claims.cli.words import beat, clean, holder, progress, quoted, say, say_json, state_style, table
from django_claims.clock import ago, wall
from django_claims.exceptions import BackendUnavailable
from django_claims.handler import claim_backends
from django_claims.leases import Lease, StopFlag, local_time
from django_claims.names import matches
from django_claims.operations import list_claims
from django_claims.stop_flags import list_stop_flags

HELP = "List who holds what now, and what is kept stopped."
PER_PAGE = 1000
NOTE_LENGTH = 60


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("--match", metavar="GLOB", default="", help="Only names that fit, such as 'import:*'.")
    add_using(parser, default=None)
    add_json(parser)


def run(command: BaseCommand, options: dict[str, Any]) -> int:
    if not conf.enabled():
        note(command, OFF)
        return DONE
    given, code = options["using"], DONE
    aliases = [given] if given else conf.aliases()
    for number, alias in enumerate(aliases):
        try:
            leases, complete = all_leases(alias, options["match"])
            flags = [
                flag for flag in list_stop_flags(using=alias) if flag.keep and matches(flag.name, options["match"])
            ]
        except BackendUnavailable as error:
            if len(aliases) == 1:
                raise
            command.stderr.write(command.style.ERROR(str(error)))
            code = UNAVAILABLE
            continue
        said = limits([alias], complete=complete)
        if options["json"]:
            for sentence in said:
                note(command, sentence)
            _print_json(command, leases, flags)
            continue
        if len(aliases) > 1:
            say(command, ("\n" if number else "") + f"{clean(alias)}: {clean(claim_backends[alias].describe())}")
        for sentence in said:
            say(command, command.style.WARNING(sentence))
        _print(command, leases, flags, bool(options["match"]))
    return code


def all_leases(alias: str, match: str) -> tuple[list[Lease], bool]:
    """Return all live leases in order of name, and whether none can be missing."""
    found: dict[str, Lease] = {}
    number, complete = 1, True
    while True:
        page = list_claims(using=alias, match=match, page=number, per_page=PER_PAGE)
        found.update((lease.name, lease) for lease in page)
        complete = complete and page.complete
        if number * PER_PAGE >= page.total:
            return list(found.values()), complete
        number += 1


def _print_json(command: BaseCommand, leases: list[Lease], flags: list[StopFlag]) -> None:
    running = {lease.name for lease in leases}
    for lease in leases:
        say_json(command, lease.as_dict())
    for flag in flags:
        if flag.name not in running:  # else it stands in its lease
            say_json(command, flag.as_dict())


def _print(command: BaseCommand, leases: list[Lease], flags: list[StopFlag], is_filtered: bool) -> None:
    rows, styles = [], {}
    for number, lease in enumerate(leases):
        styled = state_style(command, lease.state)
        if styled:
            styles[number, 5] = styled
        how_far = progress(lease.progress, note_length=NOTE_LENGTH)
        times = (ago(lease.age) if lease.acquired_at else "-", beat(lease), ago(lease.remaining))
        rows.append([quoted(lease.name), holder(lease), *times, lease.state, how_far])
    if rows:
        head = ("NAME", "HOLDER", "HELD-FOR", "BEAT", "LEFT", "STATE", "PROGRESS")
        for line in table(head, rows, styles):
            say(command, line)
    else:
        say(command, "No claim is held" + (" that fits." if is_filtered else "."))
    if flags:
        say(command)
        rows = [[quoted(flag.name), _since(flag), _until(flag), flag.by or "-", flag.reason or "-"] for flag in flags]
        for line in table(("KEPT-STOPPED", "SINCE", "UNTIL", "BY", "REASON"), rows, {}):
            say(command, line)


def _since(flag: StopFlag) -> str:
    return ago((wall() - flag.requested_at).total_seconds()) if flag.requested_at else "-"


def _until(flag: StopFlag) -> str:
    return local_time(flag.expires_at) if flag.expires_at else "cleared"
