"""What can be done about a claim, and how each ends."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from django.utils.dateparse import parse_datetime
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from django_claims.clock import wall
from django_claims.handler import claim_backends
from django_claims.operations import force_release
from django_claims.stop_flags import clear_stop, request_stop, stop_flag


@dataclass(frozen=True)
class Act:
    """One thing that a button does."""

    key: str
    label: str | Promise
    many: str | Promise  # on a selection
    help: str | Promise
    css: str


ACTS = {
    act.key: act
    for act in (
        Act(
            "stop",
            _("Stop this run"),
            _("Stop the selected runs"),
            _("Asks this run to end, and no later one. It ends when the job next checks for a stop."),
            "claims-stop",
        ),
        Act(
            "keep_stopped",
            _("Stop and keep stopped"),
            _("Stop the selected, and keep them stopped"),
            _("Asks a run to end, and lets no other begin until the stop is cleared."),
            "claims-stop",
        ),
        Act(
            "clear_stop",
            _("Clear stop"),
            _("Clear the stops of the selected"),
            _("Takes the stop back: it may run."),
            "claims-clear",
        ),
        Act(
            "force_release",
            _("Force release"),
            _("Force-release the selected"),
            _("For a holder that no longer answers: takes the claim away from it. You are asked to confirm."),
            "claims-force",
        ),
    )
}


class Outcome(enum.Enum):
    """How an act ended. Only DONE changed anything."""

    DONE = enum.auto()
    ENDED = enum.auto()  # the run that the page showed is over
    CHANGED = enum.auto()  # another stop has been set meanwhile
    NOTHING = enum.auto()  # there was no stop to clear


@dataclass(frozen=True)
class Aim:
    """
    What a form points at: a claim, and the run of it that the page showed.

    `fence` None: the page showed no run, only the name (a kept stop). `asked_at` is when the
    stop that the page showed was asked for.
    """

    alias: str
    name: str
    fence: int | None = None
    asked_at: str = ""


def perform(act: str, aim: Aim, *, by: str, reason: str = "", until: datetime | None = None) -> Outcome:
    """Do it, if what the page showed is still so. Raises BackendUnavailable: nobody can tell then."""
    if act == "stop":
        flag = request_stop(aim.name, fence=aim.fence, reason=reason, by=by, using=aim.alias)
        return Outcome.ENDED if flag is None else Outcome.DONE
    if act == "force_release":
        done = force_release(aim.name, fence=aim.fence or 0, by=by, using=aim.alias)
        return Outcome.DONE if done else Outcome.ENDED
    if aim.fence and not _lives(aim):
        return Outcome.ENDED
    if act == "keep_stopped":
        ttl = None if until is None else max((until - wall()).total_seconds(), 0.001)
        request_stop(aim.name, keep=True, ttl=ttl, reason=reason, by=by, using=aim.alias)
        return Outcome.DONE
    if aim.asked_at:
        flag = stop_flag(aim.name, using=aim.alias)
        if flag is not None and flag.requested_at != parse_datetime(aim.asked_at):
            return Outcome.CHANGED
    return Outcome.DONE if clear_stop(aim.name, using=aim.alias) else Outcome.NOTHING


def _lives(aim: Aim) -> bool:
    lease = claim_backends[aim.alias].lease(aim.name)
    return lease is not None and lease.fence == aim.fence
