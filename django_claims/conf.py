"""
The settings: read late, here and nowhere else, and judged once.

What is wrong is returned as data (`problems()`); the system checks print it, and the
handler raises the first error of an alias when that alias is used.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from django_claims.clock import shown
from django_claims.exceptions import InvalidClaimsSetting
from django_claims.guess import CACHE as CACHE
from django_claims.guess import DATABASE as DATABASE
from django_claims.guess import FILE as FILE
from django_claims.guess import HOW_TO_SET as HOW_TO_SET
from django_claims.guess import MEMORY as MEMORY
from django_claims.guess import REDIS as REDIS
from django_claims.guess import guess

DEFAULT_ALIAS = "default"
DEFAULT_TTL_MS = 180_000
DEFAULT_STORE_TIMEOUT = 5.0
MIN_STORE_TIMEOUT = 0.1
DEFAULT_EXIT_CODE = 75
DEFAULT_GRACE = 5.0
MAX_SECONDS = 10**10

ALIAS_KEYS = ("BACKEND", "TTL", "HEARTBEAT", "RENEW_DEADLINE", "STORE_TIMEOUT", "FOLLOW_DEAD", "OPTIONS")

TIMING_KEYS = ("TTL", "HEARTBEAT", "RENEW_DEADLINE", "STORE_TIMEOUT", "FOLLOW_DEAD")

FLAT_SETTINGS = ("CLAIMS_EXIT_CODE", "CLAIMS_GRACE", "CLAIMS_ADMIN_READ_ONLY")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the settings."""

    id: str
    message: str
    hint: str = ""
    alias: str = ""
    is_error: bool = True


@dataclass(frozen=True, slots=True)
class AliasSettings:
    """One alias of CLAIMS, checked; durations in whole milliseconds, timeouts in seconds."""

    alias: str
    backend: str
    ttl_ms: int = DEFAULT_TTL_MS
    heartbeat_ms: int = DEFAULT_TTL_MS // 3
    renew_deadline_ms: int = DEFAULT_TTL_MS * 2 // 3
    store_timeout: float = DEFAULT_STORE_TIMEOUT
    follow_dead: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    implicit: bool = False  # nobody wrote CLAIMS; this was guessed


def enabled() -> bool:
    """Say whether claims are on: CLAIMS = None turns them off."""
    global _enabled
    if _enabled is None:
        _enabled = getattr(django_settings, "CLAIMS", ()) is not None
    return _enabled


_enabled: bool | None = None  # each claim asks, and Django's settings take their time


def _settings_changed(*, setting: str, **kwargs: object) -> None:
    global _enabled
    _enabled = None


setting_changed.connect(_settings_changed)


def aliases() -> list[str]:
    """Return the names of all aliases."""
    raw = raw_settings()
    return [alias for alias in raw if isinstance(alias, str)] if isinstance(raw, Mapping) else []


def alias_settings(alias: str) -> AliasSettings:
    """Return the settings of one alias. Raises InvalidClaimsSetting if it has none, or broken ones."""
    raw = raw_settings()
    if raw is None:
        raise InvalidClaimsSetting("Claims are off (CLAIMS = None), so there is no backend to ask.")
    if not isinstance(raw, Mapping):
        raise InvalidClaimsSetting(_shape_problem(raw).message)
    if alias not in raw:
        known = ", ".join(map(repr, raw)) or "none"
        raise InvalidClaimsSetting(f"CLAIMS has no alias {alias!r}{_did_you_mean(alias, raw)} (there is: {known}).")
    parsed, found = _parse(alias, raw[alias])
    if parsed is None:
        raise InvalidClaimsSetting(next(p for p in found if p.is_error).message)
    return parsed


def problems() -> list[Problem]:
    """Return all that is wrong with CLAIMS and the CLAIMS_… settings, without any network."""
    raw = raw_settings()
    found = _flat_problems()
    if raw is None:
        return found
    if not isinstance(raw, Mapping) or not raw:
        return [*found, _shape_problem(raw)]
    if DEFAULT_ALIAS not in raw:
        found.append(
            Problem(
                "E001",
                "CLAIMS should have an alias 'default'.",
                "Add it: claim() uses it when using= is left out.",
            )
        )
    for alias, params in raw.items():
        found += _parse(alias, params)[1]
    return found


def exit_code() -> int:
    """Return CLAIMS_EXIT_CODE, the exit status of a refused command."""
    return int(_flat("CLAIMS_EXIT_CODE", DEFAULT_EXIT_CODE))


def grace() -> float:
    """Return CLAIMS_GRACE in seconds."""
    value = _flat("CLAIMS_GRACE", DEFAULT_GRACE)
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def admin_read_only() -> bool:
    """Return CLAIMS_ADMIN_READ_ONLY."""
    return bool(_flat("CLAIMS_ADMIN_READ_ONLY", False))


def _flat(name: str, default: Any) -> Any:
    for problem in _flat_problems():
        if problem.alias == name:
            raise InvalidClaimsSetting(problem.message)
    return getattr(django_settings, name, default)


def _flat_problems() -> list[Problem]:
    found = []
    code = getattr(django_settings, "CLAIMS_EXIT_CODE", DEFAULT_EXIT_CODE)
    if isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= 255:
        message = f"CLAIMS_EXIT_CODE should be a whole number from 0 to 255, not {code!r}."
        found.append(Problem("E010", message, "75 means 'try again later'.", "CLAIMS_EXIT_CODE"))
    grace_problem = _seconds_problem(getattr(django_settings, "CLAIMS_GRACE", DEFAULT_GRACE), least=0)
    if grace_problem:
        found.append(Problem("E011", f"CLAIMS_GRACE {grace_problem}", "", "CLAIMS_GRACE"))
    for name in dir(django_settings):
        if name.startswith("CLAIMS_") and name not in FLAT_SETTINGS:
            message = f"There is no setting {name}{_did_you_mean(name, FLAT_SETTINGS)}."
            found.append(
                Problem("W013", message, f"Settings: CLAIMS, {', '.join(FLAT_SETTINGS)}.", name, is_error=False)
            )
    read_only = getattr(django_settings, "CLAIMS_ADMIN_READ_ONLY", False)
    if not isinstance(read_only, bool):
        message = f"CLAIMS_ADMIN_READ_ONLY should be True or False, not {read_only!r}."
        found.append(Problem("E012", message, "", "CLAIMS_ADMIN_READ_ONLY"))
    return found


def raw_settings() -> Any:
    """Return CLAIMS as written, or the guess that stands in for it."""
    if hasattr(django_settings, "CLAIMS"):
        return django_settings.CLAIMS
    return {DEFAULT_ALIAS: {"BACKEND": guess()}}


def _shape_problem(raw: Any) -> Problem:
    return Problem("E001", f"CLAIMS should be a dict of aliases or None, not {raw!r}.", HOW_TO_SET)


def _did_you_mean(word: object, known: Any) -> str:
    by_upper = {str(name).upper(): str(name) for name in known}  # ttl means TTL, and CLOCK means clock
    close = difflib.get_close_matches(str(word).upper(), by_upper, n=1)
    return f"; did you mean {by_upper[close[0]]!r}?" if close else ""


def _seconds_problem(value: Any, *, least: float) -> str:
    """Return what is wrong with a number of seconds, or ''."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds != seconds:
        return f"should be a number of seconds or a timedelta, not {value!r}."
    if seconds > MAX_SECONDS:
        return f"should be at most {MAX_SECONDS} s, not {shown(value)}."
    if seconds < least:
        return f"should be at least {least} s, not {shown(value)}."
    return ""


def _parse(alias: Any, params: Any) -> tuple[AliasSettings | None, list[Problem]]:
    """Return one alias checked (None if it cannot be used), and what is wrong with it."""
    where = f"CLAIMS[{alias!r}]"
    found: list[Problem] = []

    def wrong(problem_id: str, message: str, hint: str = "") -> None:
        found.append(Problem(problem_id, message, hint, str(alias)))

    if not isinstance(alias, str) or not isinstance(params, Mapping):
        wrong("E001", f"{where} should be a dict under a text alias, not {params!r}.", HOW_TO_SET)
        return None, found
    for key in params:
        if key not in ALIAS_KEYS:
            wrong(
                "E002",
                f"{where} has the unknown key {key!r}{_did_you_mean(key, ALIAS_KEYS)}.",
                f"Keys: {', '.join(ALIAS_KEYS)}.",
            )
    backend = params.get("BACKEND")
    if not isinstance(backend, str) or not backend:
        wrong("E003", f"{where}['BACKEND'] should be a dotted path, not {backend!r}.", f"For example {REDIS!r}.")
        return None, found

    durations: dict[str, int] = {}
    for key in ("TTL", "HEARTBEAT", "RENEW_DEADLINE", "STORE_TIMEOUT"):
        if key in params:
            problem = _seconds_problem(params[key], least=MIN_STORE_TIMEOUT if key == "STORE_TIMEOUT" else 0.001)
            if problem:
                wrong("E004", f"{where}[{key!r}] {problem}", "Leave it out for the default.")
                continue
            value = params[key]
            durations[key] = round((value.total_seconds() if isinstance(value, timedelta) else value) * 1000)
    if found:
        return None, found
    ttl = durations.get("TTL", DEFAULT_TTL_MS)
    heartbeat = durations.get("HEARTBEAT", max(ttl // 3, 1))
    renew_deadline = durations.get("RENEW_DEADLINE", max(ttl * 2 // 3, 1))
    timing = timing_problem(ttl, heartbeat, renew_deadline)
    if timing:
        wrong("E005", f"{where}: {timing}", "Leave HEARTBEAT and RENEW_DEADLINE out: they follow the TTL.")
    follow_dead = params.get("FOLLOW_DEAD", True)
    if not isinstance(follow_dead, bool):
        wrong("E006", f"{where}['FOLLOW_DEAD'] should be True or False, not {follow_dead!r}.")
    options = params.get("OPTIONS", {})
    if not isinstance(options, Mapping):
        wrong("E007", f"{where}['OPTIONS'] should be a dict, not {options!r}.")
    if found:
        return None, found
    store_timeout = durations.get("STORE_TIMEOUT", int(DEFAULT_STORE_TIMEOUT * 1000)) / 1000
    return (
        AliasSettings(
            alias=alias,
            backend=backend,
            ttl_ms=ttl,
            heartbeat_ms=heartbeat,
            renew_deadline_ms=renew_deadline,
            store_timeout=max(min(store_timeout, heartbeat / 2000), MIN_STORE_TIMEOUT),
            follow_dead=follow_dead,
            options=dict(options),
            implicit=not hasattr(django_settings, "CLAIMS"),
        ),
        found,
    )


def timing_problem(ttl_ms: int, heartbeat_ms: int, renew_deadline_ms: int) -> str:
    """
    Return what is wrong with three durations together, or ''.

    A renewal that fails once must have time for a second try before the holder gives up,
    and the holder must give up before the store does: 2 x heartbeat <= renew deadline < TTL.
    """
    if 2 * heartbeat_ms > renew_deadline_ms and heartbeat_ms > 1:
        return (
            f"heartbeat ({heartbeat_ms / 1000} s) should be at most half the renew deadline "
            f"({renew_deadline_ms / 1000} s), so that one failed renewal can be tried again."
        )
    if renew_deadline_ms >= ttl_ms and ttl_ms > 1:
        return (
            f"renew deadline ({renew_deadline_ms / 1000} s) should be less than the TTL ({ttl_ms / 1000} s): "
            f"what is left of the TTL is the holder's time to stop."
        )
    return ""


_OPTION_TYPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "key_prefix": (str, "text"),
    "version": ((int, str), "a version as in CACHES"),
    "trust_add": (bool, "True or False"),
}


def option_problem(options: Mapping[str, Any], known: tuple[str, ...], alias: str) -> str:
    """Return what is wrong with the keys of OPTIONS, or with the kind of a value, or ''."""
    for key in options:
        if key not in known:
            names = ", ".join(known) or "none"
            return (
                f"CLAIMS[{alias!r}]['OPTIONS'] has the unknown key {key!r}{_did_you_mean(key, known)} (known: {names})."
            )
        kinds, what = _OPTION_TYPES.get(key, (object, ""))
        value = options[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds not in (bool, object)):
            return f"CLAIMS[{alias!r}]['OPTIONS'][{key!r}] should be {what}, not {value!r}."
    return ""
