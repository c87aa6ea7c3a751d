"""One claim on a page: its lease, or the stop that keeps it from running, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard

from django.utils.translation import gettext as _

from django_claims.admin import words
from django_claims.admin.keys import key_of
from django_claims.clock import iso
from django_claims.leases import Lease, Progress, StopFlag

STOPPABLE = ("held", "stop_asked", "stopping", "overdue", "handed_over")


@dataclass(frozen=True)
class Bar:
    """How far a job is. `value` and `most` are for <progress>: plain digits, '' if there is no end to see."""

    value: str
    most: str
    text: str
    note: str
    fraction: float

    @classmethod
    def of(cls, progress: Progress) -> Bar:
        done, total = progress.done, progress.total
        text, value, most, fraction = "", "", "", -1.0
        if _is_number(done):
            text = words.number(done)
            if _is_number(total) and total > 0:
                fraction = min(max(done / total, 0.0), 1.0)
                value, most = f"{fraction:.4f}", "1"
                parts = {
                    "done": text,
                    "total": words.number(total),
                    "percent": words.number(math.floor(100 * fraction)),
                }
                text = _("%(done)s of %(total)s (%(percent)s %%)") % parts
        return cls(value=value, most=most, text=text, note=words.plain(progress.note), fraction=fraction)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


@dataclass(frozen=True)
class Row:
    """A claim that lives, or (without a lease) one that is kept stopped, or one that has ended."""

    alias: str
    name: str
    lease: Lease | None = None
    flag: StopFlag | None = None

    # Filled in by the page, which knows its site and who looks: the address, and what may be done about it.
    url: str = ""
    acts: tuple[Any, ...] = ()

    @cached_property
    def key(self) -> str:
        return key_of(self.alias, self.name)

    @cached_property
    def shown(self) -> str:
        """The name, to be read. Forms send the name itself."""
        return words.plain(self.name)

    @property
    def fence(self) -> str:
        return str(self.lease.fence) if self.lease else ""

    @property
    def run(self) -> str:
        """What a form of several claims sends for this one."""
        return f"{self.fence or '-'} {self.alias}:{self.name}"

    @property
    def state(self) -> str:
        if self.lease is not None:
            return self.lease.state
        return "kept_stopped" if self.flag is not None else "ended"

    @property
    def state_name(self) -> str:
        return _("Ended") if self.state == "ended" else str(words.STATES.get(self.state, self.state))

    @cached_property
    def state_detail(self) -> str:
        if self.lease is None and self.flag is not None:
            return words.until(self.flag)
        return words.state_detail(self.state, self.lease, self.flag)

    @property
    def is_stoppable(self) -> bool:
        return self.state in STOPPABLE

    @property
    def is_asked(self) -> bool:
        return self.lease is not None and self.flag is not None

    @property
    def host(self) -> str:
        return words.plain(self.lease.holder.host) if self.lease and self.lease.holder else ""

    @property
    def pid(self) -> str:
        return str(self.lease.holder.pid) if self.lease and self.lease.holder else ""

    @property
    def process(self) -> str:
        return _("process %(pid)s") % {"pid": self.pid}

    @property
    def select_label(self) -> str:
        return _("Select %(name)s") % {"name": self.shown}

    @property
    def reason(self) -> str:
        return words.plain(self.flag.reason) if self.flag else ""

    @property
    def label(self) -> str:
        return words.plain(self.lease.holder.label) if self.lease and self.lease.holder else ""

    @property
    def holder_text(self) -> str:
        """What a search for a holder looks through."""
        who = self.lease.holder if self.lease else None
        return "" if who is None else f"{who.host} {who.pid} {who.label} {who.node} {who.task_id}".casefold()

    @property
    def held_for(self) -> str:
        return words.duration(self.lease.age) if self.lease and self.lease.acquired_at else ""

    @property
    def beat_age(self) -> float:
        lease = self.lease
        return (lease.read_at - lease.renewed_at).total_seconds() if lease and lease.renewed_at else 0.0

    @property
    def beat(self) -> str:
        return words.since(self.lease.renewed_at, self.lease.read_at) if self.lease and self.lease.renewed_at else ""

    @property
    def renewed_at(self) -> str:
        return iso(self.lease.renewed_at) or "" if self.lease else ""

    @property
    def left(self) -> str:
        return words.duration(self.lease.remaining) if self.lease and self.lease.expires_at else ""

    @cached_property
    def bar(self) -> Bar | None:
        return Bar.of(self.lease.progress) if self.lease and self.lease.progress else None

    def as_dict(self) -> dict[str, Any]:
        """Return what JSON says of it: the lease, as everywhere, or the flag of one that does not run."""
        if self.lease is not None:
            return self.lease.as_dict()
        return {"name": self.name, "alias": self.alias, "state": self.state,
                "stop_flag": self.flag.as_dict() if self.flag else None}  # fmt: skip
