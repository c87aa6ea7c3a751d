"""What the pages ask the stores, and the sentences for what they could not see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from django_claims import conf
from django_claims.backends.base import BaseClaimBackend, within
from django_claims.exceptions import BackendUnavailable, InvalidClaimsSetting, UnsupportedFeature
from django_claims.handler import claim_backends
from django_claims.leases import Lease, StopFlag

SECONDS = 3.0
"""What one store may take of a page, whatever its STORE_TIMEOUT."""

ALL = 10**9


@dataclass(frozen=True)
class Notice:
    """A sentence above the table. `level` is one of the admin's message levels."""

    text: str
    level: str = "warning"


def off() -> Notice:
    """Say that claims are off."""
    return Notice(
        _("Claims are off (CLAIMS = None): every claim is granted, and nothing is kept, listed or stopped."), "info"
    )


@dataclass
class Report:
    """What went wrong on the way to a page."""

    notices: list[Notice] = field(default_factory=list)
    unanswered: set[str] = field(default_factory=set)  # aliases of which nobody can tell
    unlisted: set[str] = field(default_factory=set)  # those of them that can be asked for one name

    @contextmanager
    def asking(self, alias: str) -> Iterator[None]:
        """Turn what a store cannot answer into a notice: a page is there to say so, not to fail."""
        try:
            with within(SECONDS):
                yield
        except BackendUnavailable as error:
            text = _("The store “%(alias)s” gave no answer, so nobody can tell what is held there (%(detail)s).")
            self._add(alias, Notice(text % {"alias": alias, "detail": error.detail or type(error).__name__}, "error"))
        except UnsupportedFeature:
            text = _("The store “%(alias)s” cannot list its claims. Search for the whole name of a claim to see it.")
            self.unlisted.add(alias)
            self._add(alias, Notice(text % {"alias": alias}))
        except InvalidClaimsSetting as error:
            self._add(alias, Notice(str(error), "error"))

    def _add(self, alias: str, notice: Notice) -> None:
        if alias not in self.unanswered:
            self.notices.append(notice)
        self.unanswered.add(alias)


def limits(backend: BaseClaimBackend, complete: bool) -> list[Notice]:
    """Return what the reader cannot see of a store."""
    if backend.is_process_local:
        return [
            Notice(
                _(
                    "The store “%(alias)s” is the memory of each process: claims of other processes cannot be seen "
                    "or stopped from here."
                )
                % {"alias": backend.alias}
            )
        ]
    if not complete:
        return [
            Notice(
                _(
                    "The store “%(alias)s” cannot list everything: claims may be held that are not shown here. "
                    "Search for the whole name of a claim to see it."
                )
                % {"alias": backend.alias}
            )
        ]
    return []


@dataclass
class Contents:
    """What is in the store of one alias: the names, and as far as they came along the leases."""

    alias: str
    names: list[str] = field(default_factory=list)
    leases: dict[str, Lease] | None = None  # None: ask for those that are wanted
    flags: dict[str, StopFlag] = field(default_factory=dict)
    complete: bool = True

    def leases_of(self, names: list[str]) -> dict[str, Lease]:
        """Return the leases of some names."""
        known = self.leases or {}
        others = [name for name in names if name not in known]
        found = {lease.name: lease for lease in claim_backends[self.alias].leases_of(others)} if others else {}
        return {name: known[name] for name in names if name in known} | found


def contents(alias: str, report: Report) -> Contents:
    """Return what an alias has, or an empty one and a notice that says why."""
    found = Contents(alias)
    with report.asking(alias):
        backend = claim_backends[alias]
        overview = backend.overview()
        if overview is not None:
            found.names, flags = overview
        else:
            page = backend.leases(match="", page=1, per_page=ALL)
            found.leases = {lease.name: lease for lease in page}
            found.complete, found.names = page.complete, list(found.leases)
            flags = backend.flags()
        found.complete = found.complete and backend.supports_complete_listing
        found.flags = {flag.name: flag for flag in flags}
        report.notices += limits(backend, found.complete)
    return found


def known_names(alias: str, report: Report) -> list[str]:
    """Return all names that the store of an alias knows of: live, or with a stop flag."""
    found = contents(alias, report)
    return [*found.names, *found.flags]


def described() -> list[tuple[str, str]]:
    """Return alias and store of all aliases, for people."""
    pairs = []
    for alias in conf.aliases():
        try:
            pairs.append((alias, claim_backends[alias].describe()))
        except InvalidClaimsSetting:
            pairs.append((alias, "?"))
    return pairs
