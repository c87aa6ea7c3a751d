"""Assertions on claims, with messages that say how things are instead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from django_claims import conf, registry, signals
from django_claims.claims import Claim
from django_claims.handler import claim_backends
from django_claims.leases import Lease
from django_claims.recipes import claim
from django_claims.test.acting import Target, named, state_of

_granted: set[tuple[str, str]] | None = None
"""Alias and name of what was granted since the innermost override_claims() began; None outside of any."""


@contextmanager
def remembering() -> Iterator[None]:
    """Keep in mind what is granted in the block."""
    global _granted
    before, _granted = _granted, set()
    mine = _granted

    def granted(alias: str, name: str, **about: Any) -> None:
        hold = registry.current()  # with all of its names; the signal knows the first
        mine.update((alias, each) for each in (hold.names if hold is not None else (name,)))

    signals.claim_acquired.connect(granted)
    try:
        yield
    finally:
        signals.claim_acquired.disconnect(granted)
        _granted = before


def assert_claim_held(
    target: Target, *, by: str | None = None, key: Any = None, using: str = conf.DEFAULT_ALIAS
) -> Lease:
    """
    Assert that somebody holds a claim now, and return the lease.

    `by`: its holder's host, label or node.
    """
    __tracebackhide__ = True
    names, alias = named(target, key, using)
    for name in names:
        lease = claim_backends[alias].lease(name)
        assert lease is not None and lease.state != "resting", state_of(name, alias)
        holder = lease.holder
        assert by is None or (holder and by in (holder.host, holder.label, holder.node)), (
            f"Not held by {by!r}. {state_of(name, alias)}"
        )
    lease = claim_backends[alias].lease(names[0])
    assert lease is not None, state_of(names[0], alias)
    return lease


def assert_claim_released(target: Target, *, key: Any = None, using: str = conf.DEFAULT_ALIAS) -> None:
    """
    Assert that nobody holds a claim now and, inside override_claims(), that somebody did.

    So a name that is misspelled fails. One that rests after its last run (min_hold) is released.
    """
    __tracebackhide__ = True
    names, alias = named(target, key, using)
    for name in names:
        lease = claim_backends[alias].lease(name)
        assert lease is None or lease.state == "resting", f"Not released. {state_of(name, alias)}"
        if _granted is not None:
            seen = ", ".join(repr(other) for where, other in sorted(_granted) if where == alias) or "none"
            assert (alias, name) in _granted, f"Claim {name!r} was never held (claims that were: {seen})."


class assert_claim_refused:
    """
    Assert that an acquire of a claim is refused now: somebody holds it, or it is kept stopped.

    As a context manager also that the block asked for it, and was refused:

        with held("import"), assert_claim_refused("import"):
            call_command("import_prices")
    """

    def __init__(self, target: str | Claim, *, key: Any = None, using: str = conf.DEFAULT_ALIAS) -> None:
        __tracebackhide__ = True
        self._names, self._alias = named(target, key, using)
        recipe = target if isinstance(target, Claim) else claim(target, key=key, using=using)
        assert not recipe.available(), f"Claim {self._names[0]!r} is free: an acquire would be granted."
        self._refused = 0

    def __enter__(self) -> Self:
        signals.claim_refused.connect(self._heard)
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *rest: object) -> None:
        __tracebackhide__ = True
        signals.claim_refused.disconnect(self._heard)
        if exc_type is None:
            assert self._refused, (
                f"Nobody was refused claim {self._names[0]!r} in the block. {state_of(self._names[0], self._alias)}"
            )

    def _heard(self, alias: str, name: str, **about: Any) -> None:
        if alias == self._alias and name in self._names:
            self._refused += 1
