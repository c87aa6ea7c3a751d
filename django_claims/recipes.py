"""How recipes are made, and what is done with one at once: claim(), claim_all(), hold()."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django_claims import conf, registry
from django_claims.acquiring import Acquiring
from django_claims.claims import Claim, OnLost
from django_claims.clock import Duration, milliseconds
from django_claims.conf import AliasSettings
from django_claims.exceptions import InvalidClaim
from django_claims.holds import Hold
from django_claims.names import checked, text, with_key


def claim(
    name: str,
    *,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    heartbeat: Duration | None = None,
    renew_deadline: Duration | None = None,
    timeout: Duration | None = 0.0,
    label: str = "",
    max_hold: Duration | None = None,
    min_hold: Duration = 0.0,
    on_lost: OnLost = "flag",
    stop_on_shutdown: bool = False,
    release_on_commit: bool = False,
    follow_dead: bool = True,
) -> Claim:
    """
    Return the recipe of a claim. Takes nothing, reads no settings, touches no store.

    - `key`: what exactly it is about, written after the name: a value or a tuple of values
    - `ttl`, `heartbeat`, `renew_deadline`: seconds; left out: the alias's, or a third and two thirds of `ttl`
    - `timeout`: seconds that an acquire may wait; 0 tries once, None waits without limit
    - `max_hold`: seconds after which the hold is lost though it be healthy
    - `min_hold`: seconds from the acquire before which nobody else gets it, even if released
    - `on_lost`: "flag"; "raise" ClaimLost at checkpoints and on leaving; "cancel" the asyncio task;
      "interrupt" the main thread
    - `release_on_commit`: left inside atomic(), stay until that has ended
    - `follow_dead`: take over at once from a process of this machine that is dead

    Raises InvalidClaim, naming the value, for whatever cannot be used.
    """
    return _recipe(
        (name,), key, using, ttl, heartbeat, renew_deadline, timeout, label, max_hold, min_hold, on_lost,
        stop_on_shutdown, release_on_commit, follow_dead,
    )  # fmt: skip


def claim_all(
    *names: str,
    key: Any = None,
    using: str = conf.DEFAULT_ALIAS,
    ttl: Duration | None = None,
    heartbeat: Duration | None = None,
    renew_deadline: Duration | None = None,
    timeout: Duration | None = 0.0,
    label: str = "",
    max_hold: Duration | None = None,
    min_hold: Duration = 0.0,
    on_lost: OnLost = "flag",
    stop_on_shutdown: bool = False,
    release_on_commit: bool = False,
    follow_dead: bool = True,
) -> Claim:
    """
    Return the recipe of several claims that are taken together: all or none, in one step.

    One hold for all of them, with one fence that is above each name's last. A refusal names the
    one that was not free. Sets that overlap never wait for each other in a ring: the order is
    fixed, and nothing is held while waiting. Where the store keeps a line, it stands in that of
    each name; see the page on waiting. For the arguments see claim(); `key` is written
    after each name.
    """
    if not names:
        raise InvalidClaim("claim_all() should have at least one name.")
    return _recipe(
        names, key, using, ttl, heartbeat, renew_deadline, timeout, label, max_hold, min_hold, on_lost,
        stop_on_shutdown, release_on_commit, follow_dead,
    )  # fmt: skip


def _recipe(
    names: tuple[str, ...],
    key: Any,
    using: str,
    ttl: Duration | None,
    heartbeat: Duration | None,
    renew_deadline: Duration | None,
    timeout: Duration | None,
    label: str,
    max_hold: Duration | None,
    min_hold: Duration,
    on_lost: OnLost,
    stop_on_shutdown: bool,
    release_on_commit: bool,
    follow_dead: bool,
) -> Claim:
    """Judge the arguments and return the recipe. Raises InvalidClaim."""
    whole = tuple(with_key(checked(name), key) for name in names)
    if len(whole) > 1:
        whole = tuple(sorted(set(whole)))  # one order for all
    if not isinstance(using, str):
        raise InvalidClaim(f"using should be an alias of CLAIMS, not {using!r}.")
    if on_lost not in ("flag", "raise", "cancel", "interrupt"):
        raise InvalidClaim(f"on_lost should be 'flag', 'raise', 'cancel' or 'interrupt', not {on_lost!r}.")

    def optional(value: Duration | None, what: str) -> int | None:
        return None if value is None else milliseconds(value, what)

    most = optional(max_hold, "max_hold")
    made = Claim(
        names=whole,
        using=using,
        ttl_ms=optional(ttl, "ttl"),
        heartbeat_ms=optional(heartbeat, "heartbeat"),
        renew_deadline_ms=optional(renew_deadline, "renew_deadline"),
        timeout=None if timeout is None else milliseconds(timeout, "timeout", at_least=0) / 1000,
        label=text(label, "label"),
        max_hold=None if most is None else most / 1000,
        min_hold=milliseconds(min_hold, "min_hold", at_least=0) / 1000,
        on_lost=on_lost,
        stop_on_shutdown=bool(stop_on_shutdown),
        release_on_commit=bool(release_on_commit),
        follow_dead=bool(follow_dead),
    )
    if made.ttl_ms is not None:
        # All that is needed is known: say it now, not at the first acquire.
        made.timing(AliasSettings(alias=using, backend=""))
    return made


def hold(
    name: str,
    *,
    ttl: Duration | None = None,
    heartbeat: Duration | None = None,
    stop: str | None = None,
    signal: threading.Event | Callable[[], Any] | None = None,
    using: str = conf.DEFAULT_ALIAS,
) -> Hold | None:
    """
    Take a claim if it is free, and return the hold; None if it is refused, or claims are off.

    `stop` names a stop flag to watch besides the claim's own; `signal`, an event to set or a
    callable, is tripped when a stop is seen or the hold is lost, from another thread. Release
    it in a `finally`, or use it as `with hold:`.
    """
    recipe = claim(name, ttl=ttl, heartbeat=heartbeat, using=using)
    if stop is not None:
        checked(stop)
    trip: Any = getattr(signal, "set", signal)
    if trip is not None and not callable(trip):
        raise InvalidClaim(f"signal should be a threading.Event or a callable, not {signal!r}.")
    if not conf.enabled():
        return None
    outcome = Acquiring(recipe, 0.0, watch=stop, trip=trip).acquire()
    return outcome if isinstance(outcome, Hold) else None


def current_hold() -> Hold | None:
    """Return the innermost hold that this thread or task has, or None."""
    found = registry.current()
    return found if isinstance(found, Hold) else None
