"""`claims show`: all that the store says about one claim."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_claims import conf
from django_claims.cli.asking import DONE, NONE_SUCH, OFF, add_json, add_using, limits, note
from django_claims.cli.words import beat, clean, command_line, progress, say, say_json, state_style
from django_claims.clock import ago, wall
from django_claims.handler import claim_backends
from django_claims.leases import Lease, StopFlag, local_time
from django_claims.names import checked
from django_claims.stop_flags import stop_flag

HELP = "Show who has one claim, since when, how far it is, and how to stop or break it."


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument("name", metavar="NAME")
    add_using(parser)
    add_json(parser)


def run(command: BaseCommand, options: dict[str, Any]) -> int:
    name, alias = checked(options["name"]), options["using"]
    if not conf.enabled():
        raise CommandError(OFF, returncode=NONE_SUCH)
    lease = claim_backends[alias].lease(name)
    flag = lease.stop_flag if lease and lease.stop_flag else stop_flag(name, using=alias)
    if flag is not None and not flag.keep and (lease is None or not flag.aims_at(lease.fence)):
        flag = None  # left over from a run that has just ended
    if lease is None and flag is None:
        for sentence in limits([alias]):
            note(command, sentence)
        raise CommandError(f"Nobody has claim {clean(repr(name))}, and it is not kept stopped.", returncode=NONE_SUCH)
    if options["json"]:
        # One of them there is, as was just seen.
        say_json(command, lease.as_dict() if lease else flag.as_dict())  # type: ignore[union-attr]
        return DONE
    rows = [("Claim", clean(name) + ("" if alias == conf.DEFAULT_ALIAS else f"  (alias {clean(alias)})"))]
    rows += _of_lease(command, lease) if lease else [("State", _styled(command, "kept_stopped"))]
    rows += _of_flag(flag) if flag else []
    rows += _ways_out(name, alias, lease, flag)
    for word, text in rows:
        say(command, f"{word:<11} {text}")
    return DONE


def _styled(command: BaseCommand, state: str) -> str:
    style = state_style(command, state)
    return style(state) if style else state


def _of_lease(command: BaseCommand, lease: Lease) -> list[tuple[str, str]]:
    rows = [("State", _styled(command, lease.state))]
    if lease.state == "unreadable":
        rows.append(("", "a value that is no lease of this version; it ends by its time, or by release --fence 0"))
    is_held = lease.state != "handed_over"
    if who := lease.holder:
        rows.append(("Holder" if is_held else "Had it", clean(who)))
        if who.started_at:
            rows.append(("", f"process started {local_time(who.started_at)}"))
        rows += [(word, clean(text)) for word, text in (("Node", who.node), ("Task", who.task_id)) if text]
    if lease.acquired_at:
        rows.append(("Held for", f"{ago(lease.age)}, since {local_time(lease.acquired_at)}"))
    if lease.renewed_at and is_held:
        rows.append(("Heartbeat", f"{beat(lease)} ago, every {lease.heartbeat:g} s"))
    elif lease.renewed_at and lease.state == "handed_over":
        rows.append(("Handed over", f"{beat(lease)} ago, to whoever has the ticket"))
    if lease.expires_at:
        unless = "unless renewed" if is_held else "unless adopted"
        rows.append(("Left", f"{ago(lease.remaining)} of {ago(lease.ttl)}, {unless}"))
    rows.append(("Fence", str(lease.fence)))
    if lease.progress:
        told = f", told {local_time(lease.progress.at)}" if lease.progress.at else ""
        rows.append(("Progress", progress(lease.progress) + told))
    return rows


def _of_flag(flag: StopFlag) -> list[tuple[str, str]]:
    by = f" by {clean(flag.by)}" if flag.by else ""
    asked = f", {ago((wall() - flag.requested_at).total_seconds())} ago" if flag.requested_at else ""
    rows = [("Kept stop" if flag.keep else "Stop", f"asked{by}{asked}")]
    if flag.reason:
        rows.append(("Reason", clean(flag.reason)))
    rows.append(("Seen", local_time(flag.seen_at) if flag.seen_at else "not yet by a holder"))
    if flag.keep:
        rows.append(("Until", local_time(flag.expires_at) if flag.expires_at else "cleared"))
    return rows


def _ways_out(name: str, alias: str, lease: Lease | None, flag: StopFlag | None) -> list[tuple[str, str]]:
    rows = []
    if lease and lease.holder and flag is None:
        rows.append(("Stop it:", command_line("stop", name, using=alias)))
    if flag:
        rows.append(("Let it run:", command_line("clear-stop", name, using=alias)))
    if lease:
        rows.append(("Break it:", command_line("release", name, f"--fence {lease.fence}", using=alias)))
    return rows
