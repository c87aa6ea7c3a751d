"""Durations, numbers and states in words that everybody understands, in the reader's language."""

from __future__ import annotations

import math
import re
from datetime import datetime

from django.utils import formats, timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_claims.cli.words import clean
from django_claims.clock import wall
from django_claims.leases import Lease, StopFlag

SHOWN = 120
"""Letters of a name in a sentence."""

STATES = {
    "held": pgettext_lazy("state", "Running"),
    "stop_asked": pgettext_lazy("state", "Stop asked"),
    "stopping": pgettext_lazy("state", "Stopping"),
    "overdue": pgettext_lazy("state", "Heartbeat overdue"),
    "resting": pgettext_lazy("state", "Resting"),
    "handed_over": pgettext_lazy("state", "Handed over"),
    "unreadable": pgettext_lazy("state", "Cannot be read"),
    "kept_stopped": pgettext_lazy("state", "Kept stopped"),
}

_EXPLAINED = {
    "overdue": gettext_lazy("not renewed when it should have been; it ends when its time runs out"),
    "resting": gettext_lazy("its last run is over; it may run again when this time is over"),
    "handed_over": gettext_lazy("on its way to another process"),
    "unreadable": gettext_lazy("a foreign value, or one of a newer version"),
}


_DECEIVES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Return foreign text as it can be read: what turns the letters around it, or breaks the line, is spelled out."""
    return _DECEIVES.sub(lambda found: clean(found[0]), text)


def short(name: str) -> str:
    """Return a name for a sentence or a title."""
    return plain(name if len(name) <= SHOWN else name[:SHOWN] + "…")


def duration(seconds: float) -> str:
    """Return '4 s', '12 min', '3.5 h', '2.5 d'."""
    seconds = max(seconds, 0.0)
    if seconds < 120:
        return _("%(number)s s") % {"number": number(round(seconds))}
    if seconds < 7200:
        return _("%(number)s min") % {"number": number(round(seconds / 60))}
    if seconds < 172_800:
        return _("%(number)s h") % {"number": number(round(seconds / 3600, 1))}
    return _("%(number)s d") % {"number": number(round(seconds / 86400, 1))}


def since(moment: datetime, now: datetime | None = None) -> str:
    """Return how long ago that was."""
    return _("%(duration)s ago") % {"duration": duration(((now or wall()) - moment).total_seconds())}


def number(value: object) -> str:
    """Return a number as the reader's language writes it; a foreign record may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean(value)[:40]
    if not math.isfinite(value) or abs(value) >= 1e15:
        return f"{value:.6g}" if isinstance(value, float) else clean(value)[:40]
    if isinstance(value, float):
        value = int(value) if value == int(value) else round(value, 2)
    return formats.number_format(value, force_grouping=abs(value) >= 10_000)


def moment(value: datetime | None) -> str:
    """Return a time of the reader's zone: of today without the date."""
    if value is None:
        return ""
    try:
        local = timezone.localtime(value)
    except OverflowError:  # of a foreign record, at the end of time
        return value.isoformat(timespec="seconds")
    if local.date() == timezone.localtime(wall()).date():
        return formats.time_format(local.time(), "H:i:s")
    return formats.date_format(local, "SHORT_DATE_FORMAT") + " " + formats.time_format(local.time(), "H:i:s")


def zone() -> str:
    """Return what the reader's time zone is called."""
    return timezone.get_current_timezone_name()


def state_detail(state: str, lease: Lease | None, flag: StopFlag | None) -> str:
    """Return what there is to say of a state beside its name."""
    said = [str(_EXPLAINED[state])] if state in _EXPLAINED else []
    if flag is not None and lease is not None:
        if flag.requested_at is not None:
            asked = {"ago": since(flag.requested_at, lease.read_at)}
            if state == "stop_asked":
                said.append(_("%(ago)s, not yet seen by the job") % asked)
            elif flag.seen_at is None:
                said.append(_("stop asked %(ago)s, not yet seen by the job") % asked)
            else:
                said.append(_("stop asked %(ago)s, seen by the job") % asked)
        if flag.keep:
            said.append(_("then kept stopped"))
    return "; ".join(said)


def until(flag: StopFlag) -> str:
    """Return how long a kept stop lasts."""
    if not flag.keep:
        return _("until that run ends")
    if flag.expires_at is None:
        return _("until cleared")
    return _("until %(time)s") % {"time": moment(flag.expires_at)}
